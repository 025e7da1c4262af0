/** My share in a few words: of one kernel for its notebook's toolbar, of all kernels for the status bar. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { expectedShort } from './expectedWait';
import {
  gpuNumber,
  gpuText,
  kernelName,
  memoryText,
  secondsLeft,
  stateText,
  timeLeft
} from './format';
import { problemText } from './messages';
import { Kernel, Share, Status } from './schema';
import { IState } from './state';

/** "GPU ½ · bursting 61 GiB": what the notebook's toolbar shows. A kernel that is not known yet has no more to say than "GPU". */
export function kernelSummary(
  kernel: Kernel | null,
  now: number,
  trans: TranslationBundle
): string {
  if (kernel === null) {
    return trans.__('GPU');
  }
  if (
    kernel.state === 'detached' &&
    kernel.notice_deadline === null &&
    kernel.cell_waits === null
  ) {
    return trans.__('No GPU');
  }
  const what = happening(kernel, now, trans);
  const share = shortShare(kernel.request);
  return share === null ? trans.__('GPU · %1', what) : trans.__('GPU %1 · %2', share, what);
}

/** ½, 20 GiB; null when nothing was asked. */
function shortShare(share: Share): string | null {
  if (share.gpu_memory_mib !== null) {
    return memoryText(share.gpu_memory_mib);
  }
  return share.gpu === null || share.gpu === 0 ? null : gpuNumber(share.gpu);
}

/** The one thing that its owner should know now: what is about to be taken comes before what waits, that before what is used. */
function happening(kernel: Kernel, now: number, trans: TranslationBundle): string {
  const { used, borrowed } = kernel.memory_mib;
  if (kernel.notice_deadline !== null && secondsLeft(kernel.notice_deadline, now) > 0) {
    return trans.__('taken back in %1', timeLeft(kernel.notice_deadline, now));
  }
  if (kernel.state === 'pending' && kernel.queue_position !== null) {
    const expected = expectedShort(kernel.expected_wait, trans);
    const place = trans.__('waiting, place %1', kernel.queue_position);
    return expected === null ? place : trans.__('%1, %2', place, expected);
  }
  if (kernel.cell_waits !== null) {
    return trans.__('cell waits');
  }
  if (kernel.state === 'attached' && used > 0) {
    return borrowed > 0 ? trans.__('bursting %1', memoryText(used)) : memoryText(used);
  }
  return stateText(kernel, trans);
}

/** What the toolbar's tooltip adds: why it waits, else what its state means. */
export function kernelHint(kernel: Kernel | null, trans: TranslationBundle): string {
  if (kernel === null) {
    return trans.__("This notebook's share of a GPU");
  }
  const waits = [kernel.reason?.message, kernel.expected_wait?.message]
    .filter(part => part !== undefined)
    .join(' ');
  return (
    kernel.cell_waits ??
    (waits !== '' ? waits : trans.__("This notebook's share of a GPU: request, change, release"))
  );
}

export interface ITotal {
  readonly text: string;
  readonly hint: string;
}

/** "GPU 1½ · 131 GiB": all my kernels together. Says so when what is known is old. */
export function total(state: IState, trans: TranslationBundle): ITotal {
  const { status, connection } = state;
  if (status === null) {
    return {
      text: trans.__('GPU …'),
      hint:
        state.problem === null ? trans.__('Asking the server…') : problemText(state.problem, trans)
    };
  }
  const lines = status.kernels
    .filter(kernel => kernel.state !== 'detached')
    .map(kernel => `${kernelName(kernel)}: ${kernelSummary(kernel, 0, trans)}`);
  const hint = [
    connection === 'live' ? '' : problemText(state.problem, trans),
    status.simulated ? trans.__('Simulated GPUs') : '',
    ...(lines.length === 0
      ? [trans.__('None of my notebooks has a share of a GPU')]
      : lines.slice(0, LINES)),
    lines.length > LINES ? trans.__('… and %1 more', lines.length - LINES) : ''
  ];
  const text =
    connection === 'live'
      ? totalText(status, trans)
      : trans.__('%1 (old)', totalText(status, trans));
  return { text, hint: hint.filter(line => line !== '').join('\n') };
}

const LINES = 12;

function totalText(status: Status, trans: TranslationBundle): string {
  const waiting = status.kernels.filter(kernel => kernel.state === 'pending').length;
  const holding = status.kernels.filter(
    kernel => kernel.state !== 'detached' && kernel.state !== 'pending'
  );
  const used = holding.reduce((sum, kernel) => sum + kernel.memory_mib.used, 0);
  const share = holding.length === 0 ? trans.__('no GPU') : heldText(holding, trans);
  return [
    share,
    used > 0 ? memoryText(used) : '',
    waiting > 0 ? trans.__('%1 waiting', waiting) : ''
  ]
    .filter(part => part !== '')
    .join(' · ');
}

/** Shares in GPUs and shares in memory do not add up to one number; both are said. */
function heldText(kernels: readonly Kernel[], trans: TranslationBundle): string {
  const gpus = kernels.reduce((sum, kernel) => sum + (kernel.request.gpu ?? 0), 0);
  const memory = kernels.reduce((sum, kernel) => sum + (kernel.request.gpu_memory_mib ?? 0), 0);
  return [
    gpus > 0 || memory === 0 ? gpuText(gpus) : '',
    memory > 0 ? trans.__('%1 share', memoryText(memory)) : ''
  ]
    .filter(part => part !== '')
    .join(' + ');
}
