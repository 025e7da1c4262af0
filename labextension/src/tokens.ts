/** The public face of this extension: what other extensions may ask for. */
import { Token } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal } from '@lumino/signaling';

import { KernelRequest, WhatIfAnswer } from './schema';
import { Action, IKernelEvent, IState } from './state';

/** What was asked for a kernel and accepted: a request, or null for giving its share back. */
export interface IChoice {
  readonly kernelId: string;
  readonly request: KernelRequest | null;
}

export interface IGpuShare {
  readonly state: IState;
  /** After every change of `state`. */
  readonly changed: ISignal<IGpuShare, void>;
  /** Every event of my kernels, once, as it becomes known. */
  readonly news: ISignal<IGpuShare, IKernelEvent>;
  /** After a person's request or release was accepted. */
  readonly chosen: ISignal<IGpuShare, IChoice>;
  /** Ask for a share for this kernel. What became of it is in `state`; this never rejects. Resolves to whether it was accepted. */
  request(kernelId: string, body: KernelRequest): Promise<boolean>;
  act(kernelId: string, action: Exclude<Action, 'request'>): Promise<boolean>;
  /** Would it start now? Of a kernel that has a share: in place of that. Changes nothing. Rejects when the server refuses or does not answer. */
  whatIf(body: KernelRequest, kernelId?: string): Promise<WhatIfAnswer>;
  /** Keep `state.projects` true until the result is disposed. */
  watchProjects(): IDisposable;
  /** Take note of a refusal, so that it is no longer shown. */
  dismiss(kernelId: string): void;
  retry(): void;
}

export const IGpuShare = new Token<IGpuShare>(
  'jupyter-gpushare:IGpuShare',
  'The GPU shares of my kernels: their state, their events, and what can be asked for them.'
);
