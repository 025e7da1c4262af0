/**
 * What the dashboard knows of the cluster, table by table, and how each answer changes it. Pure: no network, no clock.
 *
 * Every table says since when its rows are true, and what is wrong when they may not be any more.
 */
import {
  EvictionRow,
  NodeRow,
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
  readonly history: readonly QueueSample[];
}

export type TableName = keyof ITableRows;

/** `rows` null: never answered. `problem`: why the last question was not; what is shown was true at `at`. */
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
  history: UNKNOWN
};

/** The state after a fact. Rows that are the same as before stay the same object, so that nothing is drawn anew for them. */
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
 * - loading: never answered, and nothing is known to be wrong
 * - failed: never answered, and why
 * - stale: answered once, and not any more
 * - live: true as of the last question
 */
export type Freshness = 'loading' | 'failed' | 'stale' | 'live';

export function freshnessOf(table: ITable<unknown>): Freshness {
  if (table.rows === null) {
    return table.problem === null ? 'loading' : 'failed';
  }
  return table.problem === null ? 'live' : 'stale';
}

/** Of several tables that one view needs: the worst, and the first that has it. */
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
