/** The dashboard's data: freshness of tables, map, queue tree, cells and series. */
import { cellText, compareCells, emptyColumns, queueColumns, workloadColumns } from '../dashboard/columns';
import { queueSeries, seriesText } from '../dashboard/queueSeries';
import { placements, withCurrentNames } from '../dashboard/placement';
import { queueTree } from '../dashboard/queueTree';
import { clusterTotals } from '../dashboard/totals';
import { EMPTY, reduceCluster, freshnessOf, leastFresh } from '../dashboard/state';
import { DeviceRow, NodeRow, PoolRow, ProjectRow, QueueRow, WorkloadView } from '../schema';
import { english, kernel } from './fixtures';

const device = (index: number, changes: Partial<DeviceRow> = {}): DeviceRow => ({
  uuid: `SIM-GPU-n0-${index}`,
  model: 'A100',
  memory_mib: { total: 81920, guaranteed: 0, used: 0, borrowed: 0 },
  kernels: [],
  planned: [],
  healthy: true,
  health: '',
  foreign_mib: 0,
  foreign_processes: 0,
  ungated: [],
  utilization: null,
  temperature_c: null,
  power_w: null,
  mig: false,
  ...changes
});
const node = (name: string, changes: Partial<NodeRow> = {}): NodeRow =>
  ({
    name,
    pool: 'default',
    status: 'Ready',
    reasons: [],
    simulated: true,
    gpus: 2,
    gpu_allocated: 0.5,
    tiers: [],
    tier_problems: {},
    driver: '',
    cordoned: false,
    devices: [device(0), device(1)],
    ...changes
  }) as NodeRow;
const pool = (name: string): PoolRow => ({ name, nodes: 1, gpus: 2, pending: 0 }) as PoolRow;
const workload = (id: string, changes: object = {}): WorkloadView =>
  ({
    id,
    name: `work/${id}.ipynb`,
    kernel_id: id,
    user: 'ada',
    project: 'vision',
    state: 'running',
    request: { gpu: 0.5, gpu_memory_mib: null },
    reason: null,
    queue_position: null,
    node_pools: [],
    pods: [],
    ...changes
  }) as unknown as WorkloadView;
const queue = (
  name: string,
  kind: QueueRow['kind'],
  changes: Partial<QueueRow> = {}
): QueueRow => ({
  queue: name,
  kind,
  pool: 'default',
  resource: 'gpu',
  quota: 1,
  limit: null,
  fair_share: 1,
  allocated: 0.5,
  requested: 1,
  ...changes
});

describe('a table', () => {
  const rows = [node('n0')];
  const answered = reduceCluster(EMPTY, { type: 'answered', table: 'nodes', at: 5, rows });

  test('is loading until the first response or error', () => {
    expect(freshnessOf(EMPTY.nodes)).toBe('loading');
    expect(
      freshnessOf(reduceCluster(EMPTY, { type: 'failed', table: 'nodes', problem: 'gone' }).nodes)
    ).toBe('failed');
    expect(freshnessOf(answered.nodes)).toBe('live');
  });

  test('goes stale at its last answer, and is live again after the next one', () => {
    const stale = reduceCluster(answered, { type: 'failed', table: 'nodes', problem: 'gone' });
    expect([freshnessOf(stale.nodes), stale.nodes.at, stale.nodes.problem]).toEqual([
      'stale',
      5,
      'gone'
    ]);
    const again = reduceCluster(stale, { type: 'answered', table: 'nodes', at: 9, rows: 'same' });
    expect([freshnessOf(again.nodes), again.nodes.at]).toEqual(['live', 9]);
    expect(again.nodes.rows).toBe(rows);
  });

  test('a view is as fresh as its least fresh table', () => {
    const mixed = reduceCluster(answered, { type: 'failed', table: 'pools', problem: 'no' });
    expect(leastFresh([mixed.nodes, mixed.pools]).table.problem).toBe('no');
    expect(leastFresh([mixed.nodes, mixed.queues]).freshness).toBe('loading');
  });
});

describe('the map', () => {
  const report = (uuid: string, used: number, borrowed: number) => ({
    state: 'attached',
    gpu_uuids: [uuid],
    memory_mib: { guaranteed: 40960, used, borrowed }
  });
  const a = workload('a', {
    pods: [{ lease: { node: 'n0' }, report: report('SIM-GPU-n0-1', 71680, 30720) }]
  });

  test('shows my notebooks under their current names', () => {
    const others = workload('b', { kernel_id: 'far' });
    const names = withCurrentNames(
      [a, others],
      [kernel({ kernel_id: 'a', name: 'work/renamed.ipynb' })]
    ).map(row => row.name);
    expect(names).toEqual(['work/renamed.ipynb', 'work/b.ipynb']);
  });

  test('separates running tenants from planned ones', () => {
    const n0 = node('n0', {
      devices: [device(0, { planned: ['a', 'b'], kernels: ['b'] }), device(1, { kernels: ['a'] })]
    });
    const [first, second] = placements([n0], [pool('default')], [a, workload('b')])[0].nodes[0]
      .places;
    expect(first.here.map(one => one.name)).toEqual(['b.ipynb']);
    expect(first.plannedHere.map(one => one.name)).toEqual(['a.ipynb']);
    expect(second.here[0]).toMatchObject({
      name: 'a.ipynb',
      usedMib: 71680,
      borrowedMib: 30720,
      state: 'attached'
    });
    expect(second.plannedHere).toEqual([]);
  });

  test('counts tenants without a visible name separately', () => {
    const n0 = node('n0', {
      devices: [device(0, { kernels: ["another's", "another's"], planned: ["another's"] })]
    });
    const [place] = placements([n0], [], [])[0].nodes[0].places;
    expect(place.here.map(one => one.name)).toEqual([null, null]);
    expect(new Set(place.here.map(one => one.key)).size).toBe(2);
    expect(place.plannedHere).toEqual([]);
  });

  test("shows the project of another user's notebook without its name", () => {
    const n0 = node('n0', { devices: [device(0, { kernels: ['a'] })] });
    const [place] = placements([n0], [], [workload('a', { name: '' })])[0].nodes[0].places;
    expect(place.here[0]).toMatchObject({ name: null, project: 'vision' });
  });

  test('includes empty pools and nodes of unknown pools', () => {
    const places = placements([node('n9', { pool: 'odd' })], [pool('default')], []);
    expect(places.map(one => [one.name, one.nodes.length])).toEqual([
      ['default', 0],
      ['odd', 1]
    ]);
  });
});

describe('the queues', () => {
  const projects = [
    { name: 'vision', department: 'research' },
    { name: 'alone', department: null }
  ] as ProjectRow[];

  test('nests projects in departments, per pool and resource', () => {
    const tree = queueTree(
      [
        queue('research', 'department'),
        queue('vision', 'project'),
        queue('alone', 'project'),
        queue('vision', 'project', { pool: 'a100' })
      ],
      projects
    );
    expect(tree.map(one => [one.queue, one.pool, one.children.map(child => child.queue)])).toEqual([
      ['research', 'default', ['vision']],
      ['alone', 'default', []],
      ['vision', 'a100', []]
    ]);
  });

  test('cluster totals', () => {
    const nodes = [node('n0'), node('n1', { status: 'Not ready', gpu_allocated: 0.1 })];
    const states = [
      workload('a'),
      workload('b', { state: 'pending' }),
      workload('c', { state: 'partial' })
    ];
    expect(clusterTotals(nodes, states)).toEqual({
      gpus: 4,
      allocated: 0.6,
      nodes: 2,
      ready: 1,
      waiting: 2
    });
  });
});

describe('a cell', () => {
  it('without a value in any row makes its column an empty one, unless null has a meaning', () => {
    const columns = [
      { id: 'texts', label: '', value: (row: { a: string | null; b: number }) => row.a },
      { id: 'numbers', label: '', value: (row: { a: string | null; b: number }) => row.b },
      { id: 'lists', label: '', value: () => [] },
      { id: 'limits', label: '', value: () => null, none: 'unlimited' }
    ];
    expect(
      emptyColumns(
        [
          { a: '', b: 0 },
          { a: null, b: 0 }
        ],
        columns
      )
    ).toEqual(['texts', 'lists']);
    expect(emptyColumns([{ a: 'x', b: 0 }], columns)).toEqual(['lists']);
  });

  const quota = queueColumns(english).find(column => column.id === 'quota')!;

  test('shows null as its column says', () => {
    expect(cellText(null, quota, english)).toBe('unlimited');
    expect(cellText(null, {}, english)).toBe('');
    expect(cellText(0.1 + 0.2, quota, english)).toBe('0.3');
    expect(cellText(true, {}, english)).toBe('yes');
    expect(cellText(7200, { kind: 'duration' }, english)).toBe('2 h');
    expect(cellText(['n0', 'n1'], {}, english)).toBe('n0, n1');
  });

  test('sorts numbers by size, names in natural order, and null last', () => {
    expect([10, 9, null, 2].sort(compareCells)).toEqual([2, 9, 10, null]);
    expect(['n10', 'n9', 'n1'].sort(compareCells)).toEqual(['n1', 'n9', 'n10']);
  });

  test("has the server's column ids", () => {
    const row = workload('w', {
      reason: { code: 'WaitingForQuota', message: 'm' },
      pods: [{ lease: { node: 'n0' } }, { lease: null }]
    });
    const value = (id: string) =>
      workloadColumns(english)
        .find(column => column.id === id)!
        .value(row);
    expect([value('request.gpu'), value('reason.code'), value('pods.lease.node')]).toEqual([
      0.5,
      'WaitingForQuota',
      ['n0']
    ]);
  });
});

describe('a series', () => {
  const sample = (second: number, allocated: number, more: object = {}) => ({
    time: new Date(second * 1000).toISOString(),
    queue: 'vision',
    kind: 'project',
    pool: 'default',
    quota: null,
    fair_share: 1,
    allocated,
    requested: 2,
    ...more
  });
  const samples = [sample(0, 0), sample(5, 2), sample(5, 9, { pool: 'a100' }), sample(10, 1)];

  test('contains one queue in one pool', () => {
    expect(queueSeries(samples, 'vision', 'default')).toMatchObject({
      times: [0, 5, 10],
      allocated: [0, 2, 1]
    });
  });

  test('has a text alternative', () => {
    const text = seriesText(
      queueSeries(samples, 'vision', 'default'),
      'vision',
      'default',
      english
    );
    expect(text).toContain('1 GPUs allocated (min 0, max 2)');
    expect(text).toContain('quota unlimited');
    expect(
      seriesText(queueSeries([], 'vision', 'default'), 'vision', 'default', english)
    ).toContain('no data');
  });
});
