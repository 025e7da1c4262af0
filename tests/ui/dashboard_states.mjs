/**
 * The dashboard of unhealthy, shared, empty, large and unavailable clusters (scripted server).
 * Usage: node dashboard_states.mjs URL
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { device, largeCluster, node, pod, pool, workload } from './cluster_fixtures.mjs';
import { scriptedServer } from './scripted_server.mjs';

const { configure } = scriptedServer(process.argv[2]);
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
    const openView = view => lab.command('gpushare:dashboard', { view });
    const expectText = (what, where = board) => where.getByText(what).first().waitFor();

    // a server without these tables: the error; then empty tables
    await openView('map');
    await expectText(/The GPU share server extension is not enabled/);
    await configure({
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
    await expectText('No node has reported yet.');
    const empty = {
      workloads: /No workloads/,
      pools: /No node pools in the policy/,
      projects: /not a member of any project/,
      evictions: /No evictions recorded/,
      queues: /No queues visible to you/
    };
    for (const [view, words] of Object.entries(empty)) {
      await openView(view);
      await expectText(words);
    }

    // an unhealthy GPU, memory of other processes, other users, an offline and a cordoned node, an
    // empty pool
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
    await configure({
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
    await openView('map');
    const gpu = number => board.locator(`[data-uuid$="-${number}"]`);
    await expectText('Unhealthy: fell off the bus (Xid 79)', gpu(0));
    await expectText(/10 GiB used by 2 other processes · utilization 42\s%/, gpu(1));
    await expectText(/^a\.ipynb \(½ GPU\) · \S+ · 70 GiB · 30 GiB borrowed/, gpu(1));
    await expectText('another user', gpu(1));
    await expectText('planned here: another user in project course (½ GPU)', gpu(1));
    await expectText(/cordoned · capabilities: observe, suspend · driver 570\.86/);
    await board.getByText('unavailable: relocate').click();
    await expectText('relocate: driver 570.86 cannot restore on another GPU; 580 can');
    await expectText('Not ready', board.locator('section', { hasText: 'n1' }));
    await expectText(/agent silent/);
    await expectText(/Node pool a100/);
    await openView('evictions');
    await expectText(
      'Project vision takes back what it lent.',
      board.getByRole('row').filter({ hasText: 'b.ipynb' })
    );
    await openView('queues');
    await board.getByRole('button', { name: 'vision' }).click();
    await board.getByRole('img', { name: /1.5 GPUs allocated \(min 0, max 1.5\)/ }).waitFor();

    // no top-level landmarks; the table of workloads fits into a window of 1024 px
    assert.equal(await board.getByRole('banner').count(), 0);
    await page.setViewportSize({ width: 1024, height: 768 });
    await openView('workloads');
    await expectText('No quota.');
    const wide = await board
      .getByRole('region', { name: 'Workloads' })
      .evaluate(node => node.scrollWidth - node.clientWidth);
    assert.ok(wide <= 0, `the table is ${wide} px too wide`);
    await page.setViewportSize({ width: 1360, height: 820 });

    // 4000 rows: few are rendered, all are counted, and the last one can be reached
    await configure({ tables: largeCluster(500, 8) });
    await openView('workloads');
    await expectText('4000 rows');
    const table = board.getByRole('table');
    assert.equal(await table.getAttribute('aria-rowcount'), '4001');
    assert.ok((await table.getByRole('row').count()) < 120);
    const scroller = board.getByRole('region', { name: 'Workloads' });
    await scroller.focus();
    await page.keyboard.press('End');
    await expectText('n499-7.ipynb', table);
    await board.getByRole('searchbox').fill('n250-3.ipynb');
    await expectText('n250-3.ipynb', table);
    assert.equal(await table.getAttribute('aria-rowcount'), '2');
    await board.getByRole('searchbox').fill('no such words');
    await expectText('No matching rows.');
    await openView('map');
    await expectText('2000 / 4000 GPUs allocated');
    assert.ok((await board.locator('.jp-GpuShareDashboard-node').count()) < 40);

    // an unavailable server: stale rows are marked, then live again
    await configure({ down: true });
    await openView('nodes');
    await expectText(/Last updated at/);
    await configure({});
    await board.locator('[data-freshness=live]').waitFor();
    // the 404s of the server without these tables
    assert.deepEqual(
      lab.pageErrors.filter(line => !/status of 404/.test(line)),
      []
    );
  },
  { width: 1360, height: 820 }
);
