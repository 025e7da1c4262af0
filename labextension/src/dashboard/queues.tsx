/** The queues as a tree, and the history of one queue. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ProjectRow, QueueRow, QueueSample } from '../schema';
import { ColumnChooser, Download } from './columnChooser';
import { IColumn } from './columns';
import { IQueueSeries, queueSeries, seriesText } from './queueSeries';
import { DataTable } from './dataTable';
import { IQueueNode, queueTree } from './queueTree';
import { ILine, Plot } from './plot';

export const SPANS = [15, 60, 360, 1440] as const;

interface IQueuesProps {
  queues: readonly QueueRow[];
  projects: readonly ProjectRow[];
  history: readonly QueueSample[] | null;
  minutes: number;
  onMinutes: (minutes: number) => void;
  columns: readonly IColumn<QueueRow>[];
  shown: readonly string[];
  onShown: (shown: readonly string[]) => void;
  onCsv: (columns: readonly string[]) => Promise<string>;
  theme: string;
  trans: TranslationBundle;
}

const RESOURCES = ['gpu', 'cpu', 'memory'] as const;

const idOf = (queue: QueueRow) => `${queue.pool} ${queue.resource} ${queue.queue}`;
const childrenOf = (queue: QueueRow) => (queue as IQueueNode).children;

export function Queues(props: IQueuesProps): JSX.Element {
  const { queues, projects, history, trans } = props;
  const [resource, setResource] = React.useState<string>('gpu');
  const [picked, setPicked] = React.useState<{ queue: string; pool: string } | null>(null);
  const rows = React.useMemo(
    () =>
      queueTree(
        queues.filter(queue => queue.resource === resource),
        projects
      ),
    [queues, projects, resource]
  );
  const chosen = picked ?? (rows.length > 0 ? { queue: rows[0].queue, pool: rows[0].pool } : null);
  const pick = React.useCallback(
    (row: QueueRow) => setPicked({ queue: row.queue, pool: row.pool }),
    []
  );
  return (
    <>
      {chosen !== null && <OverTime {...props} {...chosen} history={history ?? []} />}
      <div className="jp-GpuShareDashboard-tools">
        <label>
          {trans.__('Resource')}{' '}
          <select value={resource} onChange={event => setResource(event.target.value)}>
            {RESOURCES.map(one => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
        <ColumnChooser
          columns={props.columns}
          shown={props.shown}
          onChange={props.onShown}
          trans={trans}
        />
        <Download ask={() => props.onCsv(props.shown)} name="queues.csv" trans={trans} />
      </div>
      <DataTable<QueueRow>
        label={trans.__('Queues')}
        rows={rows}
        columns={props.columns}
        shown={props.shown}
        rowId={idOf}
        childrenOf={childrenOf}
        onPick={pick}
        picked={chosen === null ? null : pickedId(rows, chosen)}
        trans={trans}
      />
    </>
  );
}

/** The table's row id, which begins with the parent's id. */
function pickedId(
  rows: readonly IQueueNode[],
  chosen: { queue: string; pool: string }
): string | null {
  for (const row of rows) {
    const child = row.children.find(one => one.queue === chosen.queue && one.pool === chosen.pool);
    if (child !== undefined) {
      return `${idOf(row)} ${idOf(child)}`;
    }
    if (row.queue === chosen.queue && row.pool === chosen.pool) {
      return idOf(row);
    }
  }
  return null;
}

function OverTime(
  props: IQueuesProps & { queue: string; pool: string; history: readonly QueueSample[] }
): JSX.Element {
  const { queue, pool, history, minutes, trans } = props;
  const series = React.useMemo(() => queueSeries(history, queue, pool), [history, queue, pool]);
  const lines = React.useMemo(() => linesOf(series, trans), [series, trans]);
  return (
    <section aria-label={trans.__('History')} className="jp-GpuShareDashboard-time">
      <div className="jp-GpuShareDashboard-tools">
        <h3>{trans.__('%1 in node pool %2: GPUs over time', queue, pool)}</h3>
        <label>
          {trans.__('Period')}{' '}
          <select value={minutes} onChange={event => props.onMinutes(Number(event.target.value))}>
            {SPANS.map(span => (
              <option key={span} value={span}>
                {span < 60
                  ? trans.__('%1 minutes', span)
                  : trans._n('%1 hour', '%1 hours', span / 60)}
              </option>
            ))}
          </select>
        </label>
      </div>
      <Plot
        times={series.times}
        lines={lines}
        text={seriesText(series, queue, pool, trans)}
        theme={props.theme}
      />
    </section>
  );
}

function linesOf(series: IQueueSeries, trans: TranslationBundle): ILine[] {
  return [
    {
      key: 'allocated',
      label: trans.__('Allocated'),
      color: '--jp-success-color1',
      width: 2,
      fill: true,
      values: series.allocated
    },
    {
      key: 'fairShare',
      label: trans.__('Fair share'),
      color: '--jp-brand-color1',
      width: 2,
      dash: [8, 4],
      values: series.fairShare
    },
    {
      key: 'quota',
      label: trans.__('Quota'),
      color: '--jp-ui-font-color1',
      width: 1,
      values: series.quota
    },
    {
      key: 'requested',
      label: trans.__('Requested'),
      color: '--jp-warn-color1',
      width: 2,
      dash: [2, 4],
      values: series.requested
    }
  ];
}
