/** Short texts: one kernel for its toolbar button, all kernels for the status bar. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { expectedShort } from './expectedWait';
import { gpuText, kernelName, memoryText, secondsLeft, shareText, timeLeft } from './format';
import { changeText, problemText } from './messages';
import { Kernel, Share, Status } from './schema';
import { IState } from './state';
import { kernelLabel, stateText } from './stateLabels';

/** "½ GPU · 61 GiB (21 GiB borrowed)": the toolbar button. */
export function kernelSummary(
  kernel: Kernel | null,
  now: number,
  trans: TranslationBundle
): string {
  if (kernel === null) {
    return trans.__('GPU');
  }
  const share = shortShare(kernel.request, trans);
  const parts = share === null ? [] : [share];
  return [...parts, currentText(kernel, now, trans)].join(' · ');
}

/** ½ GPU, 20 GiB GPU; null when nothing was requested. */
function shortShare(share: Share, trans: TranslationBundle): string | null {
  const text = shareText(share);
  return text === null || share.gpu_memory_mib === null ? text : trans.__('%1 GPU', text);
}

/** The most urgent of: notice, queue position, waiting cell, memory in use, state. */
function currentText(kernel: Kernel, now: number, trans: TranslationBundle): string {
  const { used, borrowed } = kernel.memory_mib;
  if (kernel.notice_deadline !== null && secondsLeft(kernel.notice_deadline, now) > 0) {
    return trans.__('reclaimed in %1', timeLeft(kernel.notice_deadline, now));
  }
  if (kernel.state === 'pending' && kernel.queue_position !== null) {
    const expected = expectedShort(kernel.expected_wait, trans);
    const position = trans.__('waiting, position %1', kernel.queue_position);
    return expected === null ? position : trans.__('%1, %2', position, expected);
  }
  if (kernel.cell_waits !== null) {
    return trans.__('cell waiting');
  }
  if (kernel.state === 'attached' && used > 0) {
    return borrowed > 0
      ? trans.__('%1 (%2 borrowed)', memoryText(used), memoryText(borrowed))
      : memoryText(used);
  }
  return stateText(kernelLabel(kernel), trans);
}

/** The button's tooltip: why the kernel waits, else what the button does. */
export function kernelHint(kernel: Kernel | null, trans: TranslationBundle): string {
  if (kernel === null) {
    return trans.__("This notebook's GPU share");
  }
  const change = kernel.pending_change ?? null; // older servers do not send it
  if (change !== null && kernel.cell_waits === null) {
    return [changeText(change, trans), change.reason?.message ?? ''].join(' ').trim();
  }
  const waits = [kernel.reason?.message, kernel.expected_wait?.message]
    .filter(part => part !== undefined)
    .join(' ');
  return (
    kernel.cell_waits ??
    (waits !== '' ? waits : trans.__("This notebook's GPU share: request, change, release"))
  );
}

export interface ITotal {
  readonly text: string;
  readonly hint: string;
}

/** "1½ GPUs · 131 GiB": all my kernels together; marked while offline. */
export function total(state: IState, trans: TranslationBundle): ITotal {
  const { status, connection } = state;
  if (status === null) {
    return {
      text: trans.__('GPU …'),
      hint: state.problem === null ? trans.__('Loading…') : problemText(state.problem, trans)
    };
  }
  const lines = status.kernels
    .filter(kernel => kernel.state !== 'detached')
    .map(kernel => `${kernelName(kernel)}: ${kernelSummary(kernel, 0, trans)}`);
  const hint = [
    connection === 'live' ? '' : problemText(state.problem, trans),
    status.simulated ? trans.__('Simulated GPUs') : '',
    ...(lines.length === 0 ? [trans.__('No notebook has a GPU share')] : lines.slice(0, LINES)),
    lines.length > LINES ? trans.__('… and %1 more', lines.length - LINES) : ''
  ];
  const text =
    connection === 'live'
      ? totalText(status, trans)
      : trans.__('%1 (offline)', totalText(status, trans));
  return { text, hint: hint.filter(line => line !== '').join('\n') };
}

const LINES = 12;

function totalText(status: Status, trans: TranslationBundle): string {
  const waiting = status.kernels.filter(kernel => kernel.state === 'pending').length;
  const allocated = status.kernels.filter(
    kernel => kernel.state !== 'detached' && kernel.state !== 'pending'
  );
  const used = allocated.reduce((sum, kernel) => sum + kernel.memory_mib.used, 0);
  const share =
    allocated.length === 0 ? stateText('no GPU', trans) : allocatedText(allocated, trans);
  return [
    share,
    used > 0 ? memoryText(used) : '',
    waiting > 0 ? trans.__('%1 waiting', waiting) : ''
  ]
    .filter(part => part !== '')
    .join(' · ');
}

/** Shares in GPUs and shares in memory cannot be added; both are listed. */
function allocatedText(kernels: readonly Kernel[], trans: TranslationBundle): string {
  const gpus = kernels.reduce((sum, kernel) => sum + (kernel.request.gpu ?? 0), 0);
  const memory = kernels.reduce((sum, kernel) => sum + (kernel.request.gpu_memory_mib ?? 0), 0);
  return [
    gpus > 0 || memory === 0 ? gpuText(gpus) : '',
    memory > 0 ? trans.__('%1 GPU', memoryText(memory)) : ''
  ]
    .filter(part => part !== '')
    .join(' + ');
}
