/** The expected wait of a request, no more precise than the estimate. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { ExpectedWait, WhatIfAnswer } from './schema';

/** under 1 min, 6 min, 25 min, 2.5 h, 3 days */
export function aboutText(seconds: number, trans: TranslationBundle): string {
  const minutes = seconds / 60;
  if (isMoment(seconds)) {
    return trans.__('under 1 min');
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

/** "about 6 min", "at most 1.5 h"; null when there is no estimate. */
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

/** When a preset would start: "starts now", "about 6 min", "would wait". */
export function offerText(answer: WhatIfAnswer, trans: TranslationBundle): string {
  if (isRefused(answer)) {
    return trans.__('cannot start');
  }
  if (answer.starts_now && answer.notice_ms > 0) {
    return trans.__('starts after a notice of %1', noticeText(answer));
  }
  return answer.starts_now
    ? trans.__('starts now')
    : (expectedShort(answer.expected_wait, trans) ?? trans.__('would wait'));
}

/** The longest notice that others get before it starts: "8 s". */
export function noticeText(answer: WhatIfAnswer): string {
  return `${Math.round(answer.notice_ms / 1000)} s`;
}

/** Whether the server would refuse the request, because it can never start. */
export function isRefused(answer: WhatIfAnswer): boolean {
  return answer.refused === true; // missing on older servers
}
