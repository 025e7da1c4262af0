/** The views of the dashboard and the tables that they need. */
import { TranslationBundle } from '@jupyterlab/translation';

import { IChartPanels } from '../charts/grid';
import { ChartSource } from '../charts/source';
import { MemberLimit, Status } from '../schema';
import { IBookingsApi } from './bookings';
import { ManagerAction } from './people';
import { ITableActions } from './rowActions';
import { IClusterState, TableName } from './state';

export const VIEWS = [
  'map',
  'charts',
  'queues',
  'workloads',
  'nodes',
  'pools',
  'projects',
  'people',
  'bookings',
  'evictions'
] as const;
export type View = (typeof VIEWS)[number];

/** The tables to poll per view. The totals always need nodes and workloads. */
export const NEEDS: { readonly [view in View]: readonly TableName[] } = {
  map: ['nodes', 'workloads', 'pools'],
  charts: ['nodes', 'workloads'],
  queues: ['nodes', 'workloads', 'queues', 'projects', 'history'],
  workloads: ['nodes', 'workloads', 'evictions'],
  nodes: ['nodes', 'workloads'],
  pools: ['nodes', 'workloads', 'pools'],
  projects: ['nodes', 'workloads', 'projects'],
  people: ['nodes', 'workloads', 'people'],
  bookings: ['nodes', 'workloads', 'bookings', 'pools', 'projects'],
  evictions: ['nodes', 'workloads', 'evictions']
};

/** The tables that a view shows. */
export const SHOWS: { readonly [view in View]: readonly TableName[] } = {
  map: ['nodes', 'workloads', 'pools'],
  charts: ['nodes'],
  queues: ['queues', 'projects'],
  workloads: ['workloads'],
  nodes: ['nodes'],
  pools: ['pools'],
  projects: ['projects'],
  people: ['people'],
  bookings: ['bookings', 'pools', 'projects'],
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
  onManage: (workload: string, action: ManagerAction) => Promise<void>;
  onLimit: (limit: MemberLimit) => Promise<void>;
  bookings: IBookingsApi;
  charts: ChartSource;
  panels: IChartPanels;
  actions: ITableActions;
  trans: TranslationBundle;
}

export function tabNames(trans: TranslationBundle): { readonly [view in View]: string } {
  return {
    map: trans.__('Map'),
    charts: trans.__('Charts'),
    queues: trans.__('Queues'),
    workloads: trans.__('Workloads'),
    nodes: trans.__('Nodes'),
    pools: trans.__('Node pools'),
    projects: trans.__('Projects'),
    people: trans.__('People'),
    bookings: trans.__('Bookings'),
    evictions: trans.__('Evictions')
  };
}
