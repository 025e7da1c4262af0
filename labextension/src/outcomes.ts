/** Reports of the actions that a notice offers: what they did, or why they could not. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { gpuName, kernelName, shareText } from './format';
import { IMessage, sentence } from './messages';
import { Kernel } from './schema';
import { IActionResult } from './tokens';

/**
 * The report for a result; null when none is needed, `undecided` when the kernel is still changing.
 * `isFinal`: the time to decide is over.
 */
export function outcomeOf(
  result: IActionResult,
  now: Kernel | null,
  isFinal: boolean,
  trans: TranslationBundle
): IMessage | null | 'undecided' {
  if (now === null) {
    return null;
  }
  switch (result.action) {
    case 'move':
      return moveOutcome(result, now, isFinal, trans);
    case 'request':
      return result.kernel.notice_deadline === null || result.error !== null
        ? null // requests without a notice, and errors, are shown in the form
        : requestOutcome(now, isFinal, trans);
    default:
      return null;
  }
}

function moveOutcome(
  { kernel, error }: IActionResult,
  now: Kernel,
  isFinal: boolean,
  trans: TranslationBundle
): IMessage | null | 'undecided' {
  const name = kernelName(kernel);
  if (error !== null) {
    return { tone: 'error', text: trans.__('%1: not moved. %2', name, sentence(error)) };
  }
  if (now.state === 'attached' && now.gpu_uuid !== kernel.gpu_uuid) {
    return null; // the event `moved` is a notification
  }
  if (!isFinal) {
    return 'undecided';
  }
  if (now.state === 'attached' && now.gpu_uuid !== null) {
    const gpu = gpuName(now.gpu_uuid);
    return {
      tone: 'info',
      text: trans.__('%1: still on GPU %2. No other GPU has room.', name, gpu)
    };
  }
  const saved = trans.__('%1: saved to host memory. It resumes when a GPU has room.', name);
  return { tone: 'info', text: [saved, now.cell_waits ?? ''].join(' ').trim() };
}

function requestOutcome(
  now: Kernel,
  isFinal: boolean,
  trans: TranslationBundle
): IMessage | null | 'undecided' {
  const name = kernelName(now);
  const change = now.pending_change ?? null;
  const isGranted = change === null && now.notice_deadline === null;
  if (isGranted && (now.state === 'attached' || now.state === 'granted')) {
    const share = shareText(now.request) ?? '';
    return {
      tone: 'success',
      text: trans.__('%1: the share is now %2. Its memory is not reclaimed.', name, share)
    };
  }
  if (!isFinal) {
    return 'undecided';
  }
  const waiting = trans.__('%1: the request is waiting.', name);
  return {
    tone: 'warning',
    text: [waiting, (change ?? now).reason?.message ?? ''].join(' ').trim()
  };
}
