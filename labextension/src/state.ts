/** The state of the front end, and how each event changes it. Pure. */
import { Event, Kernel, ProjectRow, Status, StreamFrame } from './schema';

/** Connection problems, in our words. */
export const LOST = 'The connection to the Jupyter server was lost.';
export const SILENT = 'The Jupyter server does not respond.';
export const LOGGED_OUT = 'You are not logged in at the Jupyter server.';

/**
 * - loading: no response yet
 * - live: the state is the server's current one
 * - stale: the server is unavailable; the state is that of `staleSince`
 * - failed: the server never responded; `problem` says why
 */
export type Connection = 'loading' | 'live' | 'stale' | 'failed';

/** `move`: suspend, then resume on a GPU with room. */
export type Action =
  | 'request'
  | 'cancel'
  | 'release'
  | 'suspend'
  | 'resume'
  | 'pin'
  | 'unpin'
  | 'move'
  | 'run-without-gpu';

/** An action on one kernel that is in flight or was refused. */
export interface IPendingAction {
  readonly action: Action;
  readonly refusal: IRequestError | null;
}

export interface IRequestError {
  readonly message: string;
  /** The invalid field of the request, if one is. */
  readonly field: string | null;
}

/**
 * A table that is polled while visible. `problem`: why rows may be stale; rows null: not loaded.
 */
export interface ITable<Row> {
  readonly rows: readonly Row[] | null;
  readonly problem: string | null;
}

export interface IState {
  readonly connection: Connection;
  readonly problem: string | null;
  readonly staleSince: number | null;
  /** Of the last frame, to resume from; null before the first. */
  readonly revision: number | null;
  readonly status: Status | null;
  readonly asked: { readonly [kernelId: string]: IPendingAction };
  readonly projects: ITable<ProjectRow>;
  /** Of the settings: GPUs, memory, or the name of a preset. */
  readonly defaultShare: string;
}

export type Fact =
  | { readonly type: 'frame'; readonly frame: StreamFrame }
  | { readonly type: 'snapshot'; readonly status: Status }
  | { readonly type: 'disconnected'; readonly at: number; readonly problem: string }
  | { readonly type: 'asked'; readonly kernelId: string; readonly action: Action }
  | { readonly type: 'answered'; readonly kernelId: string }
  | {
      readonly type: 'refused';
      readonly kernelId: string;
      readonly action: Action;
      readonly refusal: IRequestError;
    }
  | { readonly type: 'dismissed'; readonly kernelId: string }
  | { readonly type: 'projects'; readonly rows: readonly ProjectRow[] }
  | { readonly type: 'defaultShare'; readonly share: string }
  | { readonly type: 'projectsFailed'; readonly problem: string };

/** What the request form offers first, unless the settings say otherwise. */
export const DEFAULT_SHARE = '0.5';

export const INITIAL: IState = {
  connection: 'loading',
  problem: null,
  staleSince: null,
  revision: null,
  status: null,
  asked: {},
  projects: { rows: null, problem: null },
  defaultShare: DEFAULT_SHARE
};

/** Events kept per kernel, as on the server. */
const EVENTS_KEPT = 200;

/** The next state. An unknown or outdated frame returns the same object. */
export function reduce(state: IState, fact: Fact): IState {
  switch (fact.type) {
    case 'frame':
      return withFrame(state, fact.frame);
    case 'snapshot':
      return { ...state, connection: 'live', problem: null, staleSince: null, status: fact.status };
    case 'disconnected':
      return disconnected(state, fact.at, fact.problem);
    case 'asked':
      return withAsked(state, fact.kernelId, { action: fact.action, refusal: null });
    case 'answered':
      // the result arrives by the stream, which may be newer than this answer
      return withAsked(state, fact.kernelId, null);
    case 'refused':
      return withAsked(state, fact.kernelId, { action: fact.action, refusal: fact.refusal });
    case 'dismissed':
      return withAsked(state, fact.kernelId, null);
    case 'projects':
      return { ...state, projects: { rows: fact.rows, problem: null } };
    case 'defaultShare':
      return { ...state, defaultShare: fact.share };
    case 'projectsFailed':
      return { ...state, projects: { ...state.projects, problem: fact.problem } };
  }
}

function withFrame(state: IState, frame: StreamFrame): IState {
  const live: IState = {
    ...state,
    connection: 'live',
    problem: null,
    staleSince: null,
    revision: frame.revision
  };
  if (frame.type === 'state') {
    // a full state counts even with a smaller revision: a restarted server counts from zero
    return { ...live, status: frame.status };
  }
  if (state.status === null || (state.revision !== null && frame.revision <= state.revision)) {
    return state;
  }
  switch (frame.type) {
    case 'kernel':
      return withKernel(live, frame.kernel);
    case 'kernel_gone':
      return withoutKernel(live, frame.kernel_id);
    case 'event':
      return withEvent(live, frame.kernel_id, frame.event);
    case 'status':
      return { ...live, status: { ...frame.status, kernels: state.status.kernels } };
    default:
      return state; // sent by a newer server
  }
}

function disconnected(state: IState, at: number, problem: string): IState {
  if (state.status === null) {
    return { ...state, connection: 'failed', problem };
  }
  return { ...state, connection: 'stale', problem, staleSince: state.staleSince ?? at };
}

function withAsked(state: IState, kernelId: string, asked: IPendingAction | null): IState {
  const { [kernelId]: _previous, ...others } = state.asked;
  return { ...state, asked: asked === null ? others : { ...others, [kernelId]: asked } };
}

function withKernels(state: IState, kernels: Kernel[]): IState {
  return state.status === null ? state : { ...state, status: { ...state.status, kernels } };
}

function withKernel(state: IState, kernel: Kernel): IState {
  const known = state.status?.kernels ?? [];
  return withKernels(
    state,
    known.some(k => k.kernel_id === kernel.kernel_id)
      ? known.map(k => (k.kernel_id === kernel.kernel_id ? kernel : k))
      : [...known, kernel]
  );
}

function withoutKernel(state: IState, kernelId: string): IState {
  const left = (state.status?.kernels ?? []).filter(k => k.kernel_id !== kernelId);
  return withAsked(withKernels(state, left), kernelId, null);
}

function withEvent(state: IState, kernelId: string, event: Event): IState {
  const kernels = (state.status?.kernels ?? []).map(kernel =>
    kernel.kernel_id !== kernelId || kernel.events.some(known => sameEvent(known, event))
      ? kernel
      : { ...kernel, events: [...kernel.events, event].slice(-EVENTS_KEPT) }
  );
  return withKernels(state, kernels);
}

export function sameEvent(a: Event, b: Event): boolean {
  return a.time === b.time && a.kind === b.kind && a.message === b.message;
}

/** One event of one kernel. */
export interface IKernelEvent {
  readonly kernel: Kernel;
  readonly event: Event;
}

/**
 * The events in `after` that are not in `before`, oldest first per kernel. Events of kernels that
 * were not known before are not new; events during a lost connection are.
 */
export function news(before: IState, after: IState): IKernelEvent[] {
  const known = new Map((before.status?.kernels ?? []).map(kernel => [kernel.kernel_id, kernel]));
  return (after.status?.kernels ?? []).flatMap(kernel => {
    const previous = known.get(kernel.kernel_id);
    return previous === undefined || previous === kernel ? [] : newEvents(previous, kernel);
  });
}

function newEvents(previous: Kernel, kernel: Kernel): IKernelEvent[] {
  return kernel.events
    .filter(event => !previous.events.some(known => sameEvent(known, event)))
    .map(event => ({ kernel, event }));
}
