/** The content of each view of the dashboard. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { ChartGrid } from '../charts/grid';
import { NodeRow, WorkloadView } from '../schema';
import { Bookings } from './bookings';
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
import { People } from './people';
import { placements, withCurrentNames } from './placement';
import { Queues } from './queues';
import { IRowAction, kernelOfWorkload, nodeActions, workloadActions } from './rowActions';
import { ITableRows, TableName } from './state';
import { IDashboardProps, tabNames } from './views';
import { WorkloadPage } from './workloadPage';

export function ViewPanel(props: IDashboardProps): JSX.Element {
  const { state, view, trans } = props;
  switch (view) {
    case 'map':
      return <MapView {...props} />;
    case 'charts':
      return (
        <ChartGrid
          source={props.charts}
          panels={props.panels}
          nodes={state.nodes.rows!}
          kernels={props.status?.kernels ?? []}
          theme={props.theme}
          trans={trans}
        />
      );
    case 'queues':
      return <QueuesView {...props} />;
    case 'workloads':
      return <WorkloadsView {...props} />;
    case 'nodes':
      return <NodesView {...props} />;
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
    case 'people':
      return <People {...props} people={state.people.rows!} />;
    case 'bookings':
      return (
        <Bookings
          bookings={state.bookings.rows!}
          pools={state.pools.rows!}
          projects={state.projects.rows!}
          api={props.bookings}
          trans={trans}
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
  const { status, actions, trans } = props;
  const rows = useNamed(props);
  const [picked, setPicked] = React.useState<string | null>(null);
  const pick = React.useCallback((row: WorkloadView) => setPicked(row.id), []);
  const actionsOf = React.useCallback(
    (row: WorkloadView) =>
      workloadActions(row, kernelOfWorkload(row, status), status, actions, trans),
    [status, actions, trans]
  );
  const workload = rows.find(row => row.id === picked);
  return workload !== undefined ? (
    <WorkloadPage
      workload={workload}
      kernel={kernelOfWorkload(workload, status)}
      evictions={props.state.evictions.rows ?? []}
      actions={actionsOf(workload)}
      charts={props.charts}
      theme={props.theme}
      onClose={() => setPicked(null)}
      trans={trans}
    />
  ) : (
    <TableView
      {...props}
      table="workloads"
      of={workloadColumns}
      rows={rows}
      rowId={row => row.id}
      onPick={pick}
      actionsOf={actionsOf}
      empty={trans.__('No workloads.')}
    />
  );
}

function NodesView(props: IDashboardProps): JSX.Element {
  const { state, status, actions, trans } = props;
  const actionsOf = React.useCallback(
    (row: NodeRow) => nodeActions(row, status, actions, trans),
    [status, actions, trans]
  );
  return (
    <TableView
      {...props}
      table="nodes"
      of={nodeColumns}
      rows={state.nodes.rows!}
      rowId={row => row.name}
      actionsOf={actionsOf}
      empty={trans.__('No node has reported yet.')}
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
  onPick?: (row: ITableRows[Name][number]) => void;
  actionsOf?: (row: ITableRows[Name][number]) => readonly IRowAction[];
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
        onPick={props.onPick}
        actionsOf={props.actionsOf}
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
