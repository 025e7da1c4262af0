/** The public API of this extension. */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import { Kernel, KernelRequest, WhatIfAnswer } from './schema';
import { Action, IKernelEvent, IState } from './state';

/** An accepted request for a kernel, or null for a release. */
export interface IChoice {
  readonly kernelId: string;
  readonly request: KernelRequest | null;
}

/** The result of an action. `kernel`: its state before; `error`: why it was refused. */
export interface IActionResult {
  readonly kernel: Kernel;
  readonly action: Action;
  readonly error: string | null;
}

export interface IGpuShare {
  readonly state: IState;
  /** Emitted after every change of `state`. */
  readonly changed: ISignal<IGpuShare, void>;
  /** Emitted once for every new event of my kernels. */
  readonly news: ISignal<IGpuShare, IKernelEvent>;
  /** Emitted after a request or release was accepted. */
  readonly chosen: ISignal<IGpuShare, IChoice>;
  /** Emitted after every action of a person on a kernel. */
  readonly acted: ISignal<IGpuShare, IActionResult>;
  /** Request a share for this kernel. Never rejects; resolves to whether it was accepted. */
  request(kernelId: string, body: KernelRequest): Promise<boolean>;
  act(kernelId: string, action: Exclude<Action, 'request'>): Promise<boolean>;
  /** Whether a request would start now, replacing the share of `kernelId`. Rejects on errors. */
  whatIf(body: KernelRequest, kernelId?: string): Promise<WhatIfAnswer>;
  /** Keep `state.projects` up to date until the result is disposed. */
  watchProjects(): IDisposable;
  /** Dismiss the error of a refused action. */
  dismiss(kernelId: string): void;
  retry(): void;
}

export const IGpuShare = new Token<IGpuShare>(
  'jupyter-gpushare:IGpuShare',
  'The GPU shares of my kernels: their state, their events, and what can be asked for them.'
);
