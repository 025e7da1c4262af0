/** The public face of this extension: what other extensions may ask for. */
import { Token } from '@lumino/coreutils';
import { ISignal } from '@lumino/signaling';

import { KernelRequest } from './schema';
import { Action, INews, IState } from './state';

export interface IGpuShare {
  readonly state: IState;
  /** After every change of `state`. */
  readonly changed: ISignal<IGpuShare, void>;
  /** Every event of my kernels, once, as it becomes known. */
  readonly news: ISignal<IGpuShare, INews>;
  /** Ask for a share for this kernel. What became of it is in `state`; this never rejects. */
  request(kernelId: string, body: KernelRequest): Promise<void>;
  act(kernelId: string, action: Exclude<Action, 'request'>): Promise<void>;
  /** Take note of a refusal, so that it is no longer shown. */
  dismiss(kernelId: string): void;
  retry(): void;
}

export const IGpuShare = new Token<IGpuShare>(
  'jupyter-gpushare:IGpuShare',
  'The GPU shares of my kernels: their state, their events, and what can be asked for them.'
);
