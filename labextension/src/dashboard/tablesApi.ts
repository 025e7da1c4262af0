/** The dashboard's REST calls: one table each, as JSON or as CSV with selected columns. */
import { ServerConnection } from '@jupyterlab/services';

import { BookingCalendar, BookingFit, BookingRequest, MemberLimit, ROUTES } from '../schema';
import { rest } from '../apiClient';
import { ManagerAction } from './people';
import { ITableRows, TableName } from './state';

const ROUTE: { readonly [name in TableName]: { verb: string; path: string } } = {
  nodes: ROUTES.nodes,
  pools: ROUTES.pools,
  queues: ROUTES.queues,
  projects: ROUTES.projects,
  workloads: ROUTES.workloads,
  evictions: ROUTES.evictions,
  people: ROUTES.people,
  bookings: ROUTES.bookings,
  history: ROUTES.queueHistory
};

const FIELD: { readonly [name in TableName]?: string } = { history: 'samples' };

export class TablesApi {
  constructor(
    private readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings()
  ) {}

  /** The response text; the same text means the same rows. */
  text(table: TableName, query: { readonly [name: string]: string } = {}): Promise<string> {
    return rest(this.settings, ROUTE[table], { query });
  }

  async manage(workload: string, action: ManagerAction): Promise<void> {
    await rest(this.settings, ROUTES.manage, { names: { id: workload, action }, body: {} });
  }

  async limit(limit: MemberLimit): Promise<void> {
    await rest(this.settings, ROUTES.limitPerson, { body: limit });
  }

  async calendar(pool: string, from: Date, to: Date): Promise<BookingCalendar> {
    const query = { pool, from: from.toISOString(), to: to.toISOString() };
    return JSON.parse(await rest(this.settings, ROUTES.bookingCalendar, { query }));
  }

  async book(request: BookingRequest): Promise<BookingFit> {
    return JSON.parse(await rest(this.settings, ROUTES.book, { body: request }));
  }

  async cancel(booking: string): Promise<void> {
    await rest(this.settings, ROUTES.cancelBooking, { names: { booking } });
  }

  csv(table: TableName, columns: readonly string[]): Promise<string> {
    return rest(this.settings, ROUTE[table], {
      query: { format: 'csv', columns: columns.join(',') }
    });
  }
}

/** The rows in a response. */
export function rowsIn(table: TableName, text: string): ITableRows[TableName] {
  return JSON.parse(text)[FIELD[table] ?? table];
}
