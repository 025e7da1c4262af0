/** One kernel: share, placement, memory, reason for waiting and actions. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { gpuName, kernelName, percentText, shareText } from '../format';
import { sentence } from '../messages';
import { Kernel, KernelRequest } from '../schema';
import { IPendingAction } from '../state';
import { kernelLabel, stateText } from '../stateLabels';
import { Act, Actions } from './actions';
import { Events } from './events';
import { useKeptFocus } from './keptFocus';
import { MemoryBar } from './memoryBar';
import { Notice } from './notice';
import { Change, Reason } from './reason';
import { IChoices } from './requestDraft';
import { focusTarget, RequestForm } from './requestForm';
import { AskWhatIf } from './whatIf';

export interface IKernelActions {
  onRequest: (kernelId: string, request: KernelRequest) => void;
  onAct: (kernelId: string, action: Act) => void;
  onWhatIf: AskWhatIf;
  onDismiss: (kernelId: string) => void;
  onOpen: (kernel: Kernel) => void;
  /** The name of one of my kernels, or null. */
  nameOf: (kernelId: string) => string | null;
}

interface IKernelCardProps extends IKernelActions {
  kernel: Kernel;
  choices: IChoices;
  asked: IPendingAction | null;
  /** In the toolbar popover: without name and events. `asks`: starts with the request form. */
  brief?: { readonly asks: boolean };
  trans: TranslationBundle;
}

/** Memoized: a frame about one of hundreds of kernels renders one card. */
export const KernelCard = React.memo(function KernelCard(props: IKernelCardProps): JSX.Element {
  const { kernel, asked, brief, trans } = props;
  const [isFormOpen, setFormOpen] = React.useState(brief?.asks ?? false);
  const name = kernelName(kernel);
  const activeAction = asked !== null && asked.refusal === null ? asked.action : null;
  const refusal = asked?.refusal ?? null;
  const openForm = () => setFormOpen(true);
  const whatIf: AskWhatIf = request => props.onWhatIf(request, kernel.kernel_id);
  const card = React.useRef<HTMLElement>(null);
  useFormFocus(card, isFormOpen, brief?.asks === true);
  const keepFocus = useKeptFocus(card, () =>
    card.current?.querySelector<HTMLElement>('.jp-GpuShare-actions button')
  );
  const close = () => {
    setFormOpen(false);
    if (refusal !== null) {
      props.onDismiss(kernel.kernel_id); // it referred to the form
    }
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.key === 'Escape' && isFormOpen && !brief) {
      event.stopPropagation();
      close();
    }
  };
  return (
    <section
      ref={card}
      {...keepFocus}
      onKeyDown={onKeyDown}
      className="jp-GpuShare-card"
      data-state={kernel.state}
      data-kernel-id={kernel.kernel_id}
      aria-label={name}
    >
      <header>
        {brief ? (
          <strong>{trans.__('GPU share')}</strong>
        ) : (
          <Name kernel={kernel} onOpen={props.onOpen} trans={trans} />
        )}
        <span className="jp-GpuShare-state">{stateText(kernelLabel(kernel), trans)}</span>
      </header>
      {kernel.state !== 'detached' && <Where kernel={kernel} trans={trans} />}
      {kernel.gate_problem !== null && kernel.state !== 'detached' && (
        <div className="jp-GpuShare-reason" data-ungated>
          {kernel.gate_problem}
        </div>
      )}
      {kernel.notice_deadline !== null && (
        <Notice
          kernel={kernel}
          deadline={kernel.notice_deadline}
          onAct={props.onAct}
          onAsk={isFormOpen ? undefined : openForm}
          trans={trans}
        />
      )}
      {hasMemory(kernel) && (
        <MemoryBar
          memory={kernel.memory_mib}
          totalMib={kernel.gpu_memory_total_mib}
          savedMib={kernel.saved_mib}
          trans={trans}
        />
      )}
      {kernel.utilization !== null && kernel.state === 'attached' && (
        <div className="jp-GpuShare-small">
          {trans.__('GPU utilization %1', percentText(kernel.utilization))}
        </div>
      )}
      {kernel.cell_waits !== null && kernel.reason === null && (
        <div className="jp-GpuShare-reason" data-waits="cell">
          {trans.__('A cell is waiting. %1', kernel.cell_waits)}
        </div>
      )}
      {kernel.state === 'suspended' && <Suspended kernel={kernel} trans={trans} />}
      {kernel.reason !== null && (
        <Reason
          kernel={kernel}
          reason={kernel.reason}
          onWhatIf={whatIf}
          onChoose={request => props.onRequest(kernel.kernel_id, request)}
          onAct={props.onAct}
          nameOf={props.nameOf}
          trans={trans}
        />
      )}
      {kernel.pending_change && (
        <Change
          kernel={kernel}
          change={kernel.pending_change}
          onWhatIf={whatIf}
          onChoose={request => props.onRequest(kernel.kernel_id, request)}
          onAct={props.onAct}
          nameOf={props.nameOf}
          trans={trans}
        />
      )}
      {refusal !== null && !(isFormOpen && refusal.field !== null) && (
        <div className="jp-GpuShare-refusal" role="alert">
          {sentence(refusal.message)}{' '}
          <button className="jp-GpuShare-link" onClick={() => props.onDismiss(kernel.kernel_id)}>
            {trans.__('Dismiss')}
          </button>
        </div>
      )}
      {isFormOpen ? (
        <RequestForm
          id={`gpushare-${brief ? 'brief-' : ''}${kernel.kernel_id}`}
          kernel={kernel}
          choices={props.choices}
          refusal={refusal}
          busy={activeAction !== null}
          trans={trans}
          onWhatIf={whatIf}
          onCancel={close}
          onSubmit={request => props.onRequest(kernel.kernel_id, request)}
        />
      ) : (
        <Actions
          kernel={kernel}
          activeAction={activeAction}
          onAct={props.onAct}
          onAsk={openForm}
          trans={trans}
        />
      )}
      <FormCloser asked={asked} isFormOpen={isFormOpen} close={() => setFormOpen(false)} />
      {!brief && <Events events={kernel.events} trans={trans} />}
    </section>
  );
});

/**
 * Moves the focus into the form when it opens and back to the buttons when it closes. `atOnce`:
 * the form is open from the start.
 */
function useFormFocus(
  card: React.RefObject<HTMLElement>,
  isFormOpen: boolean,
  atOnce: boolean
): void {
  const before = React.useRef(isFormOpen && !atOnce);
  React.useEffect(() => {
    const changed = before.current !== isFormOpen;
    before.current = isFormOpen;
    if (!changed) {
      return;
    }
    const at = document.activeElement;
    const lost =
      at === null ||
      at === document.body ||
      card.current?.contains(at) ||
      (atOnce && at.contains(card.current));
    if (lost) {
      const button = () => card.current?.querySelector<HTMLElement>('.jp-GpuShare-actions button');
      (isFormOpen ? focusTarget(card.current) : button())?.focus();
    }
  }, [isFormOpen]);
}

function hasMemory(kernel: Kernel): boolean {
  return (
    kernel.memory_mib.used > 0 ||
    kernel.saved_mib > 0 ||
    (kernel.gpu_uuid !== null && kernel.memory_mib.guaranteed > 0)
  );
}

/** The notebook's name as a button that opens it; plain text for a kernel without a notebook. */
function Name({
  kernel,
  onOpen,
  trans
}: {
  kernel: Kernel;
  onOpen: (kernel: Kernel) => void;
  trans: TranslationBundle;
}): JSX.Element {
  const name = kernelName(kernel);
  return kernel.name === '' ? (
    <span className="jp-GpuShare-name">{name}</span>
  ) : (
    <button
      className="jp-GpuShare-name"
      title={trans.__('Open %1', kernel.name)}
      onClick={() => onOpen(kernel)}
    >
      {name}
    </button>
  );
}

function Suspended({ kernel, trans }: { kernel: Kernel; trans: TranslationBundle }): JSX.Element {
  return (
    <div className="jp-GpuShare-faint">
      {kernel.busy
        ? trans.__('The running cell is paused until the kernel is resumed.')
        : trans.__('Resumes automatically when the next cell runs.')}
    </div>
  );
}

/** Closes the form when its request was accepted. Renders nothing. */
function FormCloser(props: {
  asked: IPendingAction | null;
  isFormOpen: boolean;
  close: () => void;
}): null {
  const waited = React.useRef(false);
  React.useEffect(() => {
    if (waited.current && props.isFormOpen && props.asked === null) {
      props.close();
    }
    waited.current = props.asked?.action === 'request' && props.asked.refusal === null;
  });
  return null;
}

function Where({ kernel, trans }: { kernel: Kernel; trans: TranslationBundle }): JSX.Element {
  const parts = [
    shareText(kernel.request),
    limitText(kernel, trans),
    kernel.project,
    kernel.node,
    kernel.gpu_uuid === null ? null : gpuText(kernel.gpu_uuid, kernel.planned_gpu, trans),
    kernel.pinned ? trans.__('pinned') : null,
    kernel.gate_problem === null ? null : trans.__('ungated')
  ].filter(part => part !== null);
  return <div className="jp-GpuShare-where">{parts.join(' · ')}</div>;
}

/** The burst limit; null when it equals the share. */
function limitText({ request, limit }: Kernel, trans: TranslationBundle): string | null {
  const words = shareText(limit);
  return words === null || words === shareText(request) ? null : trans.__('up to %1', words);
}

/** The current GPU, and the planned one where it differs. */
function gpuText(actual: string, planned: string | null, trans: TranslationBundle): string {
  return planned === null || gpuName(planned) === gpuName(actual)
    ? trans.__('GPU %1', gpuName(actual))
    : trans.__('GPU %1 (planned: GPU %2)', gpuName(actual), gpuName(planned));
}
