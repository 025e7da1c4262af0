/** One queue over time: the series that a plot draws, and the same as a sentence. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { QueueSample } from '../schema';

/** Columns as uPlot takes them: times in seconds, then one list per line; null is a gap. */
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

/** The text alternative of the plot. */
export function seriesText(
  series: IQueueSeries,
  queue: string,
  pool: string,
  trans: TranslationBundle
): string {
  const last = series.times.length - 1;
  if (last < 0) {
    return trans.__('%1 in node pool %2: no data for this period.', queue, pool);
  }
  const allocated = series.allocated.filter((value): value is number => value !== null);
  const quota = series.quota[last];
  return [
    trans.__(
      '%1 in node pool %2: %3 GPUs allocated (min %4, max %5),',
      queue,
      pool,
      text(series.allocated[last]),
      text(Math.min(...allocated)),
      text(Math.max(...allocated))
    ),
    trans.__(
      'fair share %1, quota %2, requested %3.',
      text(series.fairShare[last]),
      quota === null ? trans.__('unlimited') : text(quota),
      text(series.requested[last])
    )
  ].join(' ');
}

function text(value: number | null): string {
  return value === null ? '–' : String(Number(value.toFixed(3)));
}
