/** Why a kernel waits: reason, queue position, suggestions and alternatives. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { changeText, sentence } from '../messages';
import { sameRequest } from '../sameRequest';
import {
  HelpBody,
  Kernel,
  KernelRequest,
  PendingChange,
  REASONS_PAGE,
  ReasonBody
} from '../schema';
import { Act } from './actions';
import { Expected } from './expectedWait';
import { Alternatives, AskWhatIf, changed, useWhatIf } from './whatIf';

interface IReasonProps {
  kernel: Kernel;
  reason: ReasonBody;
  onWhatIf: AskWhatIf;
  onChoose: (request: KernelRequest) => void;
  onAct: (kernelId: string, action: Act) => void;
  /** The name of one of my kernels, or null. */
  nameOf: (kernelId: string) => string | null;
  trans: TranslationBundle;
}

/** The address of its cause and remedy in the documentation. */
export function docsOf(reason: ReasonBody): string {
  return `${REASONS_PAGE}#${reason.code.toLowerCase()}`;
}

export function Reason(props: IReasonProps): JSX.Element {
  const { kernel, reason, trans } = props;
  const position = kernel.queue_position;
  const since = waitingSince(kernel);
  const [offered, setOffered] = React.useState(false);
  const helps = reason.helps.filter(
    help => help.change !== 'wait' && (!offered || !OFFERS.includes(help.change))
  );
  const later = reason.helps.find(help => help.change === 'wait');
  return (
    <div className="jp-GpuShare-reason">
      <div>{reason.message}</div>
      {position !== null && (
        <div className="jp-GpuShare-faint">{trans.__('Queue position: %1', position)}</div>
      )}
      <Expected wait={kernel.expected_wait} />
      {since !== null && (
        <div className="jp-GpuShare-faint">{trans.__('Waiting since %1', timeText(since))}</div>
      )}
      {later !== undefined && <div className="jp-GpuShare-faint">{later.message}</div>}
      {helps.length > 0 && (
        <>
          <div className="jp-GpuShare-faint">{trans.__('To start sooner:')}</div>
          <ul className="jp-GpuShare-helps">
            {helps.map(help => (
              <li key={`${help.to} ${help.message}`}>
                {help.message} <HelpButton {...props} help={help} />
              </li>
            ))}
          </ul>
        </>
      )}
      <div>
        <a
          className="jp-GpuShare-link"
          href={docsOf(reason)}
          target="_blank"
          rel="noopener"
        >
          {trans.__('About this reason')}
        </a>
      </div>
      {kernel.state === 'pending' && <AlternativesSection {...props} onOffered={setOffered} />}
    </div>
  );
}

interface IChangeProps extends Omit<IReasonProps, 'reason'> {
  change: PendingChange;
}

/** A pending request for another share; the kernel keeps the current one until it is granted. */
export function Change({ change, ...props }: IChangeProps): JSX.Element {
  return (
    <>
      <div className="jp-GpuShare-faint">{changeText(change, props.trans)}</div>
      {change.reason !== null && (
        <Reason {...props} kernel={asPending(props.kernel, change)} reason={change.reason} />
      )}
    </>
  );
}

/** The kernel as if it had only the pending request. */
function asPending(kernel: Kernel, change: PendingChange): Kernel {
  const { request, limit, project, queue_position, expected_wait } = change;
  return { ...kernel, state: 'pending', request, limit, project, queue_position, expected_wait };
}

/** A button for the suggestion to release one of my own shares. */
function HelpButton({ help, ...props }: IReasonProps & { help: HelpBody }): JSX.Element | null {
  const name = releasedName(help, props.nameOf);
  return name === null ? null : (
    <button
      type="button"
      className="jp-GpuShare-link"
      onClick={() => props.onAct(help.to, 'release')}
    >
      {props.trans.__('Release %1', name)}
    </button>
  );
}

/** The kernel whose share a suggestion says to release; null for other suggestions. */
export function releasedName(
  help: HelpBody,
  nameOf: (kernelId: string) => string | null
): string | null {
  return help.change === 'release' ? nameOf(help.to) : null;
}

/** Suggestions that a what-if answer offers with a button. */
const OFFERS = ['gpu', 'node_pools'];

/** The start of the wait: the request or the eviction. Null when it does not wait or is unknown. */
export function waitingSince(kernel: Kernel): string | null {
  const began = [...kernel.events]
    .reverse()
    .find(event => event.kind === 'requested' || event.kind === 'evicted');
  return kernel.state === 'pending' && began !== undefined ? began.time : null;
}

/** Asked when opened: hundreds of waiting kernels must not send hundreds of what-if requests. */
function AlternativesSection(
  props: Omit<IReasonProps, 'reason'> & { onOffered: (offered: boolean) => void }
): JSX.Element {
  const { kernel, trans } = props;
  const [wanted, setWanted] = React.useState(false);
  const known = useWhatIf(
    props.onWhatIf,
    wanted ? sameRequest(kernel) : null,
    `${kernel.reason?.message} ${kernel.queue_position}`
  );
  const offered =
    wanted && known !== null && 'answer' in known && known.answer.alternatives.length > 0;
  React.useEffect(() => props.onOffered(offered), [offered]);
  return (
    <details onToggle={event => setWanted(event.currentTarget.open)}>
      <summary>{trans.__('What would start now?')}</summary>
      {wanted && known === null && <div className="jp-GpuShare-faint">{trans.__('Checking…')}</div>}
      {known !== null && 'problem' in known && <div>{sentence(known.problem)}</div>}
      {known !== null && 'answer' in known && (
        <>
          {known.answer.alternatives.length === 0 && (
            <div>{trans.__('Neither a smaller share nor another node pool would start now.')}</div>
          )}
          <Alternatives
            alternatives={known.answer.alternatives}
            onChoose={change => props.onChoose(changed(sameRequest(kernel), change))}
            trans={trans}
          />
        </>
      )}
    </details>
  );
}
