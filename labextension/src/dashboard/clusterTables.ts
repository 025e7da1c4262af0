/** The cluster tables: polled while visible, and refreshed when one of my kernels changes. */
import { Poll, Throttler } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';

import { IGpuShare } from '../tokens';
import { errorText } from '../apiClient';
import { MemberLimit } from '../schema';
import { IBookingsApi } from './bookings';
import { ManagerAction } from './people';
import { ClusterFact, IClusterState, EMPTY, reduceCluster, TableName } from './state';
import { rowsIn, TablesApi } from './tablesApi';

const INTERVAL_MS = 5000;
const MAX_INTERVAL_MS = 60_000;
/** Kernel events come in bursts; the tables are refreshed at most this often. */
const FOLLOW_MS = 250;

export class ClusterTables {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly client: TablesApi = new TablesApi()
  ) {
    this.poll = new Poll({
      name: 'jupyter-gpushare:cluster',
      auto: false,
      factory: () => this.pollTables(),
      frequency: { interval: INTERVAL_MS, backoff: true, max: MAX_INTERVAL_MS },
      standby: 'when-hidden'
    });
    this.refreshSoon = new Throttler(() => void this.poll.refresh(), {
      limit: FOLLOW_MS,
      edge: 'trailing'
    });
    gpushare.changed.connect(this.onKernels, this);
  }

  get state(): IClusterState {
    return this._state;
  }

  /** Emitted after every change of rows or problems. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Poll these tables from now on; an empty list stops polling. */
  watch(tables: readonly TableName[], minutes: number): void {
    this.tables = tables;
    this.minutes = minutes;
    if (tables.length === 0) {
      void this.poll.stop();
    } else {
      this.refresh();
    }
  }

  refresh(): void {
    void this.poll.start().then(() => this.poll.refresh());
  }

  csv(table: TableName, columns: readonly string[]): Promise<string> {
    return this.client.csv(table, columns);
  }

  /** A manager's action; the tables are refreshed after it. */
  async manage(workload: string, action: ManagerAction): Promise<void> {
    await this.client.manage(workload, action);
    this.refresh();
  }

  async limit(limit: MemberLimit): Promise<void> {
    await this.client.limit(limit);
    this.refresh();
  }

  /** Calls of the bookings view; the tables are refreshed after a change. */
  readonly bookings: IBookingsApi = {
    calendar: (pool, from, to) => this.client.calendar(pool, from, to),
    book: async request => {
      const fit = await this.client.book(request);
      this.refresh();
      return fit;
    },
    cancel: async booking => {
      await this.client.cancel(booking);
      this.refresh();
    }
  };

  dispose(): void {
    this.gpushare.changed.disconnect(this.onKernels, this);
    this.refreshSoon.dispose();
    this.poll.dispose();
  }

  private onKernels(): void {
    if (this.tables.length > 0) {
      void this.refreshSoon.invoke();
    }
  }

  /** Rejects when no table was answered, so that the poll backs off. */
  private async pollTables(): Promise<void> {
    const polled = this.tables;
    const results = await Promise.all(polled.map(table => this.pollTable(table)));
    if (polled.length > 0 && !results.includes(true)) {
      throw new Error('no table was answered');
    }
  }

  private async pollTable(table: TableName): Promise<boolean> {
    try {
      const minutes = table === 'history' ? this.minutes : null;
      const text = await this.client.text(
        table,
        minutes === null ? {} : { minutes: String(minutes) }
      );
      const isSame = this.texts.get(table) === text;
      this.texts.set(table, text);
      this.apply({
        type: 'answered',
        table,
        at: Date.now(),
        rows: isSame ? 'same' : rowsIn(table, text)
      });
      return true;
    } catch (error) {
      this.apply({ type: 'failed', table, problem: errorText(error) });
      return false;
    }
  }

  private apply(fact: ClusterFact): void {
    const before = this._state[fact.table];
    this._state = reduceCluster(this._state, fact);
    const after = this._state[fact.table];
    if (after.rows !== before.rows || after.problem !== before.problem) {
      this._changed.emit();
    }
  }

  private readonly poll: Poll<void>;
  private readonly refreshSoon: Throttler;
  private readonly texts = new Map<TableName, string>();
  private tables: readonly TableName[] = [];
  private minutes = 60;
  private _state: IClusterState = EMPTY;
  private readonly _changed = new Signal<this, void>(this);
}
