/** The dashboard: cluster totals and one view at a time. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { problemText } from '../messages';
import { Status, WorkloadView } from '../schema';
import { ColumnChooser, Download } from './columnChooser';
import {
  evictionColumns,
  IColumn,
  nodeColumns,
  poolColumns,
  projectColumns,
  queueColumns,
  workloadColumns
} from './columns';
import { DataTable } from './dataTable';
import { Map } from './map';
import { placements, withCurrentNames } from './placement';
import { clusterTotals } from './totals';
import { Queues } from './queues';
import { IClusterState, ITableRows, TableName, freshnessOf, leastFresh } from './state';

export const VIEWS = [
  'map',
  'queues',
  'workloads',
  'nodes',
  'pools',
  'projects',
  'evictions'
] as const;
export type View = (typeof VIEWS)[number];

/** The tables to poll per view. The totals always need nodes and workloads. */
export const NEEDS: { readonly [view in View]: readonly TableName[] } = {
  map: ['nodes', 'workloads', 'pools'],
  queues: ['nodes', 'workloads', 'queues', 'projects', 'history'],
  workloads: ['nodes', 'workloads'],
  nodes: ['nodes', 'workloads'],
  pools: ['nodes', 'workloads', 'pools'],
  projects: ['nodes', 'workloads', 'projects'],
  evictions: ['nodes', 'workloads', 'evictions']
};

/** The tables that a view shows. */
const SHOWS: { readonly [view in View]: readonly TableName[] } = {
  map: ['nodes', 'workloads', 'pools'],
  queues: ['queues', 'projects'],
  workloads: ['workloads'],
  nodes: ['nodes'],
  pools: ['pools'],
  projects: ['projects'],
  evictions: ['evictions']
};

/** Selected columns by table; a table that is missing here shows its default columns. */
export type Chosen = { readonly [table: string]: readonly string[] };

export interface IDashboardProps {
  state: IClusterState;
  status: Status | null;
  view: View;
  minutes: number;
  chosen: Chosen;
  theme: string;
  onView: (view: View) => void;
  onMinutes: (minutes: number) => void;
  onChosen: (table: TableName, columns: readonly string[]) => void;
  onCsv: (table: TableName, columns: readonly string[]) => Promise<string>;
  onRetry: () => void;
  trans: TranslationBundle;
}

export function Dashboard(props: IDashboardProps): JSX.Element {
  const { state, status, view, trans } = props;
  const { freshness, table } = leastFresh(SHOWS[view].map(name => state[name]));
  const retry = (
    <button className="jp-GpuShare-link" onClick={props.onRetry}>
      {trans.__('Retry')}
    </button>
  );
  return (
    <div className="jp-GpuShareDashboard-content" data-freshness={freshness} data-view={view}>
      <div className="jp-GpuShareDashboard-head">
        <h2>{trans.__('GPU cluster')}</h2>
        {status?.simulated && (
          <span className="jp-GpuShare-simulated" title={trans.__('These GPUs are simulated')}>
            {trans.__('simulated')}
          </span>
        )}
        <Totals state={state} trans={trans} />
      </div>
      <Tabs view={view} onView={props.onView} trans={trans} />
      <div
        role="tabpanel"
        id="gpushare-dashboard-panel"
        aria-labelledby={`gpushare-tab-${view}`}
        className="jp-GpuShareDashboard-view"
      >
        {freshness === 'loading' && <p className="jp-GpuShare-faint">{trans.__('Loading…')}</p>}
        {freshness === 'failed' && (
          <p className="jp-GpuShare-warning" role="alert">
            {problemText(table.problem, trans)} {retry}
          </p>
        )}
        {freshness === 'stale' && (
          <p className="jp-GpuShare-warning" role="status">
            {problemText(table.problem, trans)}{' '}
            {trans.__('Last updated at %1.', timeText(table.at ?? 0))} {retry}
          </p>
        )}
        {(freshness === 'live' || freshness === 'stale') && <Shown {...props} />}
      </div>
    </div>
  );
}

function Totals({
  state,
  trans
}: {
  state: IClusterState;
  trans: TranslationBundle;
}): JSX.Element | null {
  const nodes = state.nodes.rows;
  const workloads = state.workloads.rows;
  const figures = React.useMemo(
    () => (nodes === null ? null : clusterTotals(nodes, workloads ?? [])),
    [nodes, workloads]
  );
  if (figures === null) {
    return null;
  }
  const { gpus, allocated, ready, waiting } = figures;
  return (
    <p className="jp-GpuShareDashboard-figures">
      <span>
        <b>{`${allocated} / ${gpus}`}</b> {trans.__('GPUs allocated')}
      </span>
      <span>
        <b>{`${ready} / ${figures.nodes}`}</b> {trans.__('nodes ready')}
      </span>
      <span>
        <b>{waiting}</b> {trans._n('workload waiting', 'workloads waiting', waiting)}
      </span>
      {freshnessOf(state.nodes) === 'stale' && (
        <span>{trans.__('(at %1)', timeText(state.nodes.at ?? 0))}</span>
      )}
    </p>
  );
}

function tabNames(trans: TranslationBundle): { readonly [view in View]: string } {
  return {
    map: trans.__('Map'),
    queues: trans.__('Queues'),
    workloads: trans.__('Workloads'),
    nodes: trans.__('Nodes'),
    pools: trans.__('Node pools'),
    projects: trans.__('Projects'),
    evictions: trans.__('Evictions')
  };
}

/** Tabs as in the ARIA Authoring Practices: one Tab stop, arrow keys move between tabs. */
function Tabs({
  view,
  onView,
  trans
}: Pick<IDashboardProps, 'view' | 'onView' | 'trans'>): JSX.Element {
  const names = tabNames(trans);
  const list = React.useRef<HTMLDivElement>(null);
  const go = (event: React.KeyboardEvent) => {
    const steps: { [key: string]: number } = {
      ArrowRight: 1,
      ArrowLeft: -1,
      Home: -VIEWS.indexOf(view),
      End: VIEWS.length - 1 - VIEWS.indexOf(view)
    };
    if (event.key in steps) {
      event.preventDefault();
      const next = VIEWS[(VIEWS.indexOf(view) + steps[event.key] + VIEWS.length) % VIEWS.length];
      onView(next);
      list.current?.querySelector<HTMLElement>(`#gpushare-tab-${next}`)?.focus();
    }
  };
  return (
    <div
      ref={list}
      role="tablist"
      aria-label={trans.__('Views')}
      className="jp-GpuShareDashboard-tabs"
      onKeyDown={go}
    >
      {VIEWS.map(one => (
        <button
          key={one}
          id={`gpushare-tab-${one}`}
          role="tab"
          aria-selected={one === view}
          aria-controls="gpushare-dashboard-panel"
          tabIndex={one === view ? 0 : -1}
          onClick={() => onView(one)}
        >
          {names[one]}
        </button>
      ))}
    </div>
  );
}

function Shown(props: IDashboardProps): JSX.Element {
  const { state, view, trans } = props;
  switch (view) {
    case 'map':
      return <MapView {...props} />;
    case 'queues':
      return <QueuesView {...props} />;
    case 'workloads':
      return <WorkloadsView {...props} />;
    case 'nodes':
      return (
        <TableView
          {...props}
          table="nodes"
          of={nodeColumns}
          rows={state.nodes.rows!}
          rowId={row => row.name}
          empty={trans.__('No node has reported yet.')}
        />
      );
    case 'pools':
      return (
        <TableView
          {...props}
          table="pools"
          of={poolColumns}
          rows={state.pools.rows!}
          rowId={row => row.name}
          empty={trans.__('No node pools in the policy.')}
        />
      );
    case 'projects':
      return (
        <TableView
          {...props}
          table="projects"
          of={projectColumns}
          rows={state.projects.rows!}
          rowId={row => `${row.name} ${row.pool}`}
          empty={trans.__('You are not a member of any project.')}
        />
      );
    case 'evictions':
      return (
        <TableView
          {...props}
          table="evictions"
          of={evictionColumns}
          rows={state.evictions.rows!}
          rowId={row => `${row.time} ${row.workload} ${row.pod}`}
          empty={trans.__('No evictions recorded.')}
        />
      );
  }
}

function useNamed({ state, status }: IDashboardProps): readonly WorkloadView[] {
  const rows = state.workloads.rows;
  const mine = status?.kernels;
  return React.useMemo(() => withCurrentNames(rows ?? [], mine ?? []), [rows, mine]);
}

function WorkloadsView(props: IDashboardProps): JSX.Element {
  const rows = useNamed(props);
  return (
    <TableView
      {...props}
      table="workloads"
      of={workloadColumns}
      rows={rows}
      rowId={row => row.id}
      empty={props.trans.__('No workloads.')}
    />
  );
}

function MapView(props: IDashboardProps): JSX.Element {
  const { nodes, pools } = props.state;
  const { trans } = props;
  const workloads = useNamed(props);
  const places = React.useMemo(
    () => placements(nodes.rows!, pools.rows!, workloads),
    [nodes.rows, pools.rows, workloads]
  );
  return nodes.rows!.length === 0 ? (
    <p className="jp-GpuShare-faint">{trans.__('No node has reported yet.')}</p>
  ) : (
    <Map pools={places} trans={trans} />
  );
}

function QueuesView(props: IDashboardProps): JSX.Element {
  const { state, trans } = props;
  const columns = React.useMemo(() => queueColumns(trans), [trans]);
  const shown = shownOf(columns, props.chosen.queues);
  return state.queues.rows!.length === 0 ? (
    <p className="jp-GpuShare-faint">{trans.__('No queues visible to you.')}</p>
  ) : (
    <Queues
      {...props}
      queues={state.queues.rows!}
      projects={state.projects.rows!}
      history={state.history.rows}
      columns={columns}
      shown={shown}
      onShown={ids => props.onChosen('queues', ids)}
      onCsv={ids => props.onCsv('queues', ids)}
    />
  );
}

interface ITableViewProps<Name extends TableName> extends IDashboardProps {
  table: Name;
  of: (trans: TranslationBundle) => IColumn<ITableRows[Name][number]>[];
  rows: ITableRows[Name];
  rowId: (row: ITableRows[Name][number]) => string;
  empty: string;
}

function TableView<Name extends TableName>(props: ITableViewProps<Name>): JSX.Element {
  const { table, of, rows, trans } = props;
  const [filter, setFilter] = React.useState('');
  const columns = React.useMemo(() => of(trans), [of, trans]);
  const chosen = props.chosen[table];
  const shown = React.useMemo(() => shownOf(columns, chosen), [columns, chosen]);
  if (rows.length === 0) {
    return <p className="jp-GpuShare-faint">{props.empty}</p>;
  }
  return (
    <>
      <div className="jp-GpuShareDashboard-tools">
        <input
          type="search"
          value={filter}
          placeholder={trans.__('Filter rows')}
          aria-label={trans.__('Filter rows')}
          onChange={event => setFilter(event.target.value)}
        />
        <span className="jp-GpuShare-faint">{trans._n('%1 row', '%1 rows', rows.length)}</span>
        <ColumnChooser
          columns={columns}
          shown={shown}
          onChange={ids => props.onChosen(table, ids)}
          trans={trans}
        />
        <Download ask={() => props.onCsv(table, shown)} name={`${table}.csv`} trans={trans} />
      </div>
      <DataTable<ITableRows[Name][number]>
        label={tabNames(trans)[props.view]}
        rows={rows}
        columns={columns}
        shown={shown}
        filter={filter}
        rowId={props.rowId}
        trans={trans}
      />
    </>
  );
}

/** The selected columns that still exist, else the default columns. */
function shownOf<Row>(
  columns: readonly IColumn<Row>[],
  chosen: readonly string[] | undefined
): readonly string[] {
  const known = (chosen ?? []).filter(id => columns.some(column => column.id === id));
  return known.length > 0
    ? known
    : columns.filter(column => !column.hidden).map(column => column.id);
}
