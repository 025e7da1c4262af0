/** The sidebar: my notebooks, this node and my projects. */
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { problemText } from '../messages';
import { SchedulerStatus, Status } from '../schema';
import { IState, LOGGED_OUT } from '../state';
import { IKernelActions, KernelCard } from './kernelCard';
import { Node } from './node';
import { Projects } from './projects';
import { IChoices } from './requestDraft';
import { Section } from './section';

interface IPanelProps extends IKernelActions {
  state: IState;
  onRetry: () => void;
  /** Opens the dashboard; missing where there is none. */
  onDashboard?: () => void;
  /** Called when a state is in the page, before the browser shows it. */
  onRendered?: () => void;
  trans: TranslationBundle;
}

export function Panel(props: IPanelProps): JSX.Element {
  const { state, onDashboard, onRendered, trans } = props;
  React.useLayoutEffect(() => {
    onRendered?.();
  });
  return (
    <div className="jp-GpuShare-content" data-connection={state.connection}>
      <div className="jp-GpuShare-head">
        <h2>{trans.__('GPU share')}</h2>
        {state.status?.simulated && (
          <span className="jp-GpuShare-simulated" title={trans.__('These GPUs are simulated')}>
            {trans.__('simulated')}
          </span>
        )}
        {onDashboard !== undefined && (
          <button className="jp-GpuShare-link" onClick={onDashboard}>
            {trans.__('Dashboard')}
          </button>
        )}
      </div>
      <ConnectionLine {...props} />
      {state.status !== null && <Known {...props} status={state.status} />}
    </div>
  );
}

/** The connection problem, if there is one. */
export function ConnectionLine({
  state,
  onRetry,
  trans
}: Pick<IPanelProps, 'state' | 'onRetry' | 'trans'>): JSX.Element | null {
  const retry = (
    <>
      {state.problem === LOGGED_OUT && <LoginLink trans={trans} />}
      <button className="jp-GpuShare-link" onClick={onRetry}>
        {trans.__('Retry')}
      </button>
    </>
  );
  switch (state.connection) {
    case 'live':
      return null;
    case 'loading':
      return <p className="jp-GpuShare-faint">{trans.__('Loading…')}</p>;
    case 'stale':
      return (
        <p className="jp-GpuShare-warning" role="status">
          {problemText(state.problem, trans)}{' '}
          {trans.__('Last updated at %1.', timeText(state.staleSince ?? 0))} {retry}
        </p>
      );
    case 'failed':
      return (
        <p className="jp-GpuShare-warning" role="alert">
          {problemText(state.problem, trans)} {retry}
        </p>
      );
  }
}

/** Jupyter's login page, in another tab: unsaved work in this one is kept. */
export function LoginLink({ trans }: { trans: TranslationBundle }): JSX.Element {
  return (
    <>
      <a
        className="jp-GpuShare-link"
        href={URLExt.join(PageConfig.getBaseUrl(), 'login')}
        target="_blank"
        rel="noreferrer"
      >
        {trans.__('Log in')}
      </a>{' '}
    </>
  );
}

function Known(props: IPanelProps & { status: Status }): JSX.Element {
  const { state, status, trans } = props;
  return (
    <>
      <Problems status={status} trans={trans} />
      <Section title={trans.__('My notebooks')} count={status.kernels.length}>
        <Kernels {...props} />
      </Section>
      <Section title={trans.__('This node')} open={false}>
        <Node status={status} trans={trans} />
      </Section>
      {/* the last one: it is loaded when the panel is shown, and must not move the others */}
      <Section title={trans.__('My projects')}>
        <Projects projects={state.projects} order={status.projects} trans={trans} />
      </Section>
    </>
  );
}

/** Problems of the scheduler or the node agent. */
function Problems({ status, trans }: { status: Status; trans: TranslationBundle }): JSX.Element {
  const line = (who: SchedulerStatus, gone: string) => {
    const text = who.reachable ? who.problem && problemText(who.problem, trans) : gone;
    return text === null ? null : (
      <p className="jp-GpuShare-warning" role="status" title={who.problem ?? undefined}>
        {text}
      </p>
    );
  };
  const refused = status.scheduler.policy_problems ?? []; // missing on older servers
  return (
    <>
      {refused.length > 0 && <PolicyProblems lines={refused} trans={trans} />}
      {line(
        withoutPolicy(status.scheduler, refused),
        trans.__('The scheduler does not respond. New requests wait until it is back.')
      )}
      {line(
        status.agent,
        trans.__('The node agent does not respond. GPU assignments stay as they are.')
      )}
    </>
  );
}

/** The scheduler's status with the problems that are not listed by `PolicyProblems`. */
function withoutPolicy(scheduler: SchedulerStatus, refused: readonly string[]): SchedulerStatus {
  const others = (scheduler.problem ?? '').replace(refused.join('; '), '').replace(/^; /, '');
  return { ...scheduler, problem: others === '' ? null : others };
}

const SHOWN_LINES = 3;

/** A refused policy file: what is in force, the lines with errors, and what to do. */
function PolicyProblems({
  lines,
  trans
}: {
  lines: readonly string[];
  trans: TranslationBundle;
}): JSX.Element {
  const more = lines.length - SHOWN_LINES;
  return (
    <div className="jp-GpuShare-warning jp-GpuShare-policy" role="status">
      <strong>{trans.__('The changed policy file has errors. The previous policy applies.')}</strong>
      <ul>
        {lines.slice(0, SHOWN_LINES).map(line => (
          <li key={line} title={line}>
            {line.replace(/^\S*\//, '')}
          </li>
        ))}
      </ul>
      {more > 0 && <div>{trans._n('%1 more error.', '%1 more errors.', more)}</div>}
      <div>{trans.__('Correct and save the file: it is read again.')}</div>
    </div>
  );
}

function Kernels(props: IPanelProps & { status: Status }): JSX.Element {
  const { state, status, trans } = props;
  const choices = useChoices(status, state.defaultShare);
  if (status.kernels.length === 0) {
    return (
      <p className="jp-GpuShare-faint">
        {trans.__(
          'No running notebooks. Open one, then request a share here or with %gpu request 0.5.'
        )}
      </p>
    );
  }
  return (
    <>
      {status.kernels.map(kernel => (
        <KernelCard
          key={kernel.kernel_id}
          kernel={kernel}
          choices={choices}
          asked={state.asked[kernel.kernel_id] ?? null}
          onRequest={props.onRequest}
          onAct={props.onAct}
          onWhatIf={props.onWhatIf}
          onDismiss={props.onDismiss}
          onOpen={props.onOpen}
          nameOf={props.nameOf}
          trans={trans}
        />
      ))}
    </>
  );
}

/** The same object while the choices are equal, so that memoized cards do not render again. */
export function useChoices(
  { projects, node_pools, priority_classes, presets }: Status,
  defaultShare: string
): IChoices {
  return React.useMemo(
    () => ({ projects, node_pools, priority_classes, presets, defaultShare }),
    [projects, node_pools, priority_classes, presets, defaultShare]
  );
}
