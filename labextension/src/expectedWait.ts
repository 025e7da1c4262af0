/** How much longer a request waits, in words that are no more exact than what is known. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { ExpectedWait, WhatIfAnswer } from './schema';

/** Less than a minute, 6 min, 25 min, 2.5 h, 3 days. */
export function aboutText(seconds: number, trans: TranslationBundle): string {
  const minutes = seconds / 60;
  if (isMoment(seconds)) {
    return trans.__('less than a minute');
  }
  if (minutes < 88) {
    return trans.__(
      '%1 min',
      minutes < 12 ? Math.max(1, Math.round(minutes)) : 5 * Math.round(minutes / 5)
    );
  }
  const hours = minutes / 60;
  return hours < 36
    ? trans.__('%1 h', hours < 5 ? Math.round(2 * hours) / 2 : Math.round(hours))
    : trans.__('%1 days', Math.max(2, Math.round(hours / 24)));
}

function isMoment(seconds: number): boolean {
  return seconds < 45;
}

/** "about 6 min", "at most 1.5 h": where there is room for a few words; null when nothing is known. */
export function expectedShort(
  wait: ExpectedWait | null | undefined,
  trans: TranslationBundle
): string | null {
  if (!wait) {
    return null;
  }
  const { seconds_median: median } = wait;
  if (median !== null) {
    return isMoment(median)
      ? aboutText(median, trans)
      : trans.__('about %1', aboutText(median, trans));
  }
  return wait.seconds_at_most === null
    ? null
    : trans.__('at most %1', aboutText(wait.seconds_at_most, trans));
}

/** What a share that is offered would mean now: "starts now", "about 6 min", "waits". */
export function offerText(answer: WhatIfAnswer, trans: TranslationBundle): string {
  return answer.starts_now
    ? trans.__('starts now')
    : (expectedShort(answer.expected_wait, trans) ?? trans.__('would wait'));
}
