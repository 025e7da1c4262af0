/** The cluster tables as the dashboard knows them, and how each answer changes them. Pure. */
import {
  BookingRow,
  EvictionRow,
  NodeRow,
  PersonRow,
  PoolRow,
  ProjectRow,
  QueueRow,
  QueueSample,
  WorkloadView
} from '../schema';

export interface ITableRows {
  readonly nodes: readonly NodeRow[];
  readonly pools: readonly PoolRow[];
  readonly queues: readonly QueueRow[];
  readonly projects: readonly ProjectRow[];
  readonly workloads: readonly WorkloadView[];
  readonly evictions: readonly EvictionRow[];
  readonly people: readonly PersonRow[];
  readonly bookings: readonly BookingRow[];
  readonly history: readonly QueueSample[];
}

export type TableName = keyof ITableRows;

/**
 * `rows` null: never answered. `at`: time of the last answer. `problem`: why the last poll failed.
 */
export interface ITable<Rows> {
  readonly rows: Rows | null;
  readonly at: number | null;
  readonly problem: string | null;
}

export type IClusterState = { readonly [name in TableName]: ITable<ITableRows[name]> };

export type ClusterFact =
  | {
      readonly type: 'answered';
      readonly table: TableName;
      readonly at: number;
      readonly rows: ITableRows[TableName] | 'same';
    }
  | { readonly type: 'failed'; readonly table: TableName; readonly problem: string };

const UNKNOWN = { rows: null, at: null, problem: null };

export const EMPTY: IClusterState = {
  nodes: UNKNOWN,
  pools: UNKNOWN,
  queues: UNKNOWN,
  projects: UNKNOWN,
  workloads: UNKNOWN,
  evictions: UNKNOWN,
  people: UNKNOWN,
  bookings: UNKNOWN,
  history: UNKNOWN
};

/** The next state. Unchanged rows stay the same object, so that nothing renders again for them. */
export function reduceCluster(state: IClusterState, fact: ClusterFact): IClusterState {
  const before = state[fact.table];
  switch (fact.type) {
    case 'answered': {
      const rows = fact.rows === 'same' ? before.rows : fact.rows;
      return { ...state, [fact.table]: { rows, at: fact.at, problem: null } };
    }
    case 'failed':
      return { ...state, [fact.table]: { ...before, problem: fact.problem } };
  }
}

/**
 * - loading: no response yet
 * - failed: the first poll failed
 * - stale: the last poll failed; rows are those of `at`
 * - live: the rows of the last poll
 */
export type Freshness = 'loading' | 'failed' | 'stale' | 'live';

export function freshnessOf(table: ITable<unknown>): Freshness {
  if (table.rows === null) {
    return table.problem === null ? 'loading' : 'failed';
  }
  return table.problem === null ? 'live' : 'stale';
}

/** The least fresh of several tables. */
export function leastFresh(tables: readonly ITable<unknown>[]): {
  freshness: Freshness;
  table: ITable<unknown>;
} {
  const order: Freshness[] = ['failed', 'loading', 'stale', 'live'];
  const ranked = tables.map(table => ({ freshness: freshnessOf(table), table }));
  return ranked.reduce((worst, one) =>
    order.indexOf(one.freshness) < order.indexOf(worst.freshness) ? one : worst
  );
}
