/** One queue over time: the numbers that a plot draws and the sentence that says the same. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { QueueSample } from '../schema';

/** Columns as uPlot takes them: seconds, then a list per line; null is a gap. */
export interface IQueueSeries {
  readonly times: readonly number[];
  readonly quota: readonly (number | null)[];
  readonly fairShare: readonly (number | null)[];
  readonly allocated: readonly (number | null)[];
  readonly requested: readonly (number | null)[];
}

export function queueSeries(
  samples: readonly QueueSample[],
  queue: string,
  pool: string
): IQueueSeries {
  const mine = samples.filter(sample => sample.queue === queue && sample.pool === pool);
  return {
    times: mine.map(sample => Date.parse(sample.time) / 1000),
    quota: mine.map(sample => sample.quota),
    fairShare: mine.map(sample => sample.fair_share),
    allocated: mine.map(sample => sample.allocated),
    requested: mine.map(sample => sample.requested)
  };
}

/** What somebody reads who does not see the plot. */
export function seriesText(
  curve: IQueueSeries,
  queue: string,
  pool: string,
  trans: TranslationBundle
): string {
  const last = curve.times.length - 1;
  if (last < 0) {
    return trans.__('%1 in node pool %2: nothing is known of this time.', queue, pool);
  }
  const held = curve.allocated.filter((value): value is number => value !== null);
  const quota = curve.quota[last];
  return trans.__(
    '%1 in node pool %2: allocated %3 GPUs now, between %4 and %5 in this time; fair share %6, quota %7, requested %8.',
    queue,
    pool,
    text(curve.allocated[last]),
    text(Math.min(...held)),
    text(Math.max(...held)),
    text(curve.fairShare[last]),
    quota === null ? trans.__('unlimited') : text(quota),
    text(curve.requested[last])
  );
}

function text(value: number | null): string {
  return value === null ? '–' : String(Number(value.toFixed(3)));
}
