/**
 * What the front end knows, and how each fact changes it. Pure: no network, no clock, no JupyterLab.
 *
 * A view never has to guess whether what it shows is true: `connection` says it.
 */
import { Event, Kernel, ProjectRow, Status, StreamFrame } from './schema';

/** What is wrong with the connection, in words of ours (a server's own words stand for themselves). */
export const LOST = 'The connection to the Jupyter server was lost.';
export const SILENT = 'The Jupyter server does not answer.';

/**
 * - loading: nothing is known yet
 * - live: what is shown is what the server says now
 * - stale: the server was there and is not now; what is shown was true at `staleSince`
 * - failed: the server never answered; `problem` says how
 */
export type Connection = 'loading' | 'live' | 'stale' | 'failed';

/** `move`: save its memory and bring it back where there is room. */
export type Action = 'request' | 'release' | 'suspend' | 'resume' | 'pin' | 'unpin' | 'move';

/** An action on one kernel that was asked and not answered, or that was refused. */
export interface IPendingAction {
  readonly action: Action;
  readonly refusal: IRequestError | null;
}

export interface IRequestError {
  readonly message: string;
  /** The field of the request that is wrong, when one is. */
  readonly field: string | null;
}

/** A table that is asked for while somebody looks at it. `problem`: why what it shows may be old; rows null: nothing is known. */
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
  | { readonly type: 'projectsFailed'; readonly problem: string };

export const INITIAL: IState = {
  connection: 'loading',
  problem: null,
  staleSince: null,
  revision: null,
  status: null,
  asked: {},
  projects: { rows: null, problem: null }
};

/** Events kept per kernel: as many as the server keeps is more than a panel shows. */
const EVENTS_KEPT = 200;

/** The state after a fact. An unknown or outdated frame changes nothing and gives back the same object. */
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
    case 'answered': // what became of it comes by the stream: an answer may be older than what the stream said since
      return withAsked(state, fact.kernelId, null);
    case 'refused':
      return withAsked(state, fact.kernelId, { action: fact.action, refusal: fact.refusal });
    case 'dismissed':
      return withAsked(state, fact.kernelId, null);
    case 'projects':
      return { ...state, projects: { rows: fact.rows, problem: null } };
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
    // a full state counts even with a smaller revision: the server was restarted and counts anew
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
      return state; // a newer server says more than we know
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
 * The events that `after` has and `before` lacks, oldest first per kernel.
 *
 * Nothing is news in the first state, nor of a kernel seen for the first time: its past is no message to anybody.
 * After a lost connection everything that happened meanwhile is.
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
