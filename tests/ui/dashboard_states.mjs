/** What the dashboard says of a cluster that is ill, foreign, empty, large or gone: node dashboard_states.mjs URL (scripted) */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { device, largeCluster, node, pod, pool, workload } from './cluster_fixtures.mjs';
import { scriptedServer } from './scripted_server.mjs';

const { say } = scriptedServer(process.argv[2]);
const eviction = {
  time: new Date().toISOString(),
  workload: 'w1',
  name: 'b.ipynb',
  pod: '0',
  user: 'bob',
  project: 'course',
  node: 'n0',
  pool: 'default',
  action: 'reclaim',
  by: '',
  by_project: 'vision',
  message: 'Project vision takes back what it lent.'
};
const queue = changes => ({
  queue: 'vision',
  kind: 'project',
  pool: 'default',
  resource: 'gpu',
  quota: 1,
  limit: null,
  fair_share: 1.5,
  allocated: 1.5,
  requested: 3,
  ...changes
});
const sample = (minute, allocated) => ({
  time: new Date(Date.now() - minute * 60_000).toISOString(),
  queue: 'vision',
  kind: 'project',
  pool: 'default',
  quota: 1,
  fair_share: 1.5,
  allocated,
  requested: 3
});

await inLab(
  process.argv[2],
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard');
    const turnTo = view => lab.command('gpushare:dashboard', { view });
    const shows = (what, where = board) => where.getByText(what).first().waitFor();

    // a server that does not know these tables: that, and nothing else, is said; then there is nothing to show
    await turnTo('map');
    await shows(/The server has no GPU share extension/);
    await say({
      tables: {
        nodes: [],
        pools: [],
        workloads: [],
        queues: [],
        projects: [],
        evictions: [],
        'history/queues': []
      }
    });
    await shows('No node has reported yet.');
    const empty = {
      workloads: /Nobody has a share of a GPU/,
      pools: /has no node pools/,
      projects: /You are in no project/,
      evictions: /Nobody has been evicted/,
      queues: /no queues that you may see/
    };
    for (const [view, words] of Object.entries(empty)) {
      await turnTo(view);
      await shows(words);
    }

    // an ill GPU, foreign memory, others' notebooks, a node that is away, a cordoned one, an empty pool
    const devices = [
      device({ uuid: 'SIM-GPU-n0-0', healthy: false, health: 'fell off the bus (Xid 79)' }),
      device({
        uuid: 'SIM-GPU-n0-1',
        memory_mib: { total: 81920, guaranteed: 40960, used: 61440, borrowed: 20480 },
        foreign_mib: 10240,
        foreign_processes: 2,
        utilization: 0.42,
        kernels: ['k1', "another's"],
        planned: ['k1', 'k2']
      })
    ];
    await say({
      tables: {
        nodes: [
          node({
            devices,
            cordoned: true,
            driver: '570.86',
            tier_problems: { relocate: 'driver 570.86 cannot restore on another GPU; 580 can' }
          }),
          node({ name: 'n1', status: 'Not ready', reasons: ['agent silent'], devices: [] })
        ],
        pools: [
          pool({ nodes: 2, nodes_ready: 1, pending: 1, status: 'Ready' }),
          pool({ name: 'a100', nodes: 0, gpus: 0, gpu_allocated: 0, status: 'Empty' })
        ],
        workloads: [
          workload({ id: 'w1', kernel_id: 'k1', pods: [pod('n0', 'SIM-GPU-n0-1')] }),
          workload({
            id: 'w2',
            kernel_id: 'k2',
            name: '',
            project: 'course',
            state: 'pending',
            queue_position: 1,
            reason: { code: 'WaitingForQuota', message: 'No quota.', numbers: {}, helps: [] }
          })
        ],
        queues: [queue({ queue: 'research', kind: 'department' }), queue()],
        projects: [
          {
            name: 'vision',
            department: 'research',
            pool: 'default',
            member: true,
            gpu_quota: 1,
            gpu_limit: null,
            gpu_fair_share: 1.5,
            gpu_allocated: 1.5,
            gpu_requested: 3
          }
        ],
        'history/queues': [sample(20, 0), sample(10, 1), sample(1, 1.5)],
        evictions: [eviction]
      }
    });
    await turnTo('map');
    const gpu = number => board.locator(`[data-uuid$="-${number}"]`);
    await shows('Not healthy: fell off the bus (Xid 79)', gpu(0));
    await shows(/10 GiB held by 2 foreign processes · busy 42\s%/, gpu(1));
    await shows(/^a\.ipynb \(½ GPU\) · 70 GiB · 30 GiB borrowed/, gpu(1));
    await shows('somebody', gpu(1));
    await shows('planned here: somebody in project course (½ GPU)', gpu(1));
    await shows(/cordoned · can observe, suspend · driver 570\.86/);
    await board.getByText('cannot relocate').click();
    await shows('relocate: driver 570.86 cannot restore on another GPU; 580 can');
    await shows('Not ready', board.locator('section', { hasText: 'n1' }));
    await shows(/agent silent/);
    await shows(/Node pool a100/);
    await turnTo('evictions');
    await shows(
      'Project vision takes back what it lent.',
      board.getByRole('row').filter({ hasText: 'b.ipynb' })
    );
    await turnTo('queues');
    await board.getByRole('button', { name: 'vision' }).click();
    await board.getByRole('img', { name: /allocated 1.5 GPUs now, between 0 and 1.5/ }).waitFor();

    // thousands of rows: few are in the page, all are counted, and the last one is there when somebody goes to it
    await say({ tables: largeCluster(500, 8) });
    await turnTo('workloads');
    await shows('4000 rows');
    const table = board.getByRole('table');
    assert.equal(await table.getAttribute('aria-rowcount'), '4001');
    assert.ok((await table.getByRole('row').count()) < 120);
    const scroller = board.getByRole('region', { name: 'Workloads' });
    await scroller.focus();
    await page.keyboard.press('End');
    await shows('n499-7.ipynb', table);
    await board.getByRole('searchbox').fill('n250-3.ipynb');
    await shows('n250-3.ipynb', table);
    assert.equal(await table.getAttribute('aria-rowcount'), '2');
    await board.getByRole('searchbox').fill('no such words');
    await shows('No row has these words.');
    await turnTo('map');
    await shows('2000 / 4000 GPUs allocated');
    assert.ok((await board.locator('.jp-GpuShareDashboard-node').count()) < 40);

    // everything is gone: what is shown is said to be old, and then it is true again by itself
    await say({ down: true });
    await turnTo('nodes');
    await shows(/Below is what was true at/);
    await say({});
    await board.locator('[data-freshness=live]').waitFor();
    // Chromium's own word for what we asked for above: a server without these tables
    assert.deepEqual(
      lab.complaints.filter(line => !/status of 404/.test(line)),
      []
    );
  },
  { width: 1360, height: 820 }
);
