/**
 * Every text is translatable, with the scripted server.
 * Usage: node translation.mjs URL
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';
import { catalogue, switchLanguage, untranslated } from './pseudo_translation.mjs';
import { device, node, pod, pool, workload } from './cluster_fixtures.mjs';
import { kernel, scriptedServer } from './scripted_server.mjs';

const { configure } = scriptedServer(process.argv[2]);
const NONE = {
  request: { gpu: null, gpu_memory_mib: null },
  node: null,
  gpu_uuid: null,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
  gpu_memory_total_mib: 0
};
const event = { time: new Date().toISOString(), kind: 'moved', message: '<moved>' };
const reason = {
  code: 'WaitingForQuota',
  message: '<reason>',
  numbers: {},
  helps: [{ change: 'release', to: 'k4', message: '<help>' }]
};
const eviction = {
  time: event.time,
  workload: '<w1>',
  name: 'b.ipynb',
  pod: '0',
  user: 'bob',
  project: 'course',
  node: 'n0',
  pool: 'default',
  action: '<act>',
  by: '',
  by_project: 'vision',
  message: '<why>'
};
const queue = {
  queue: 'vision',
  kind: 'project',
  pool: 'default',
  resource: 'gpu',
  quota: 1,
  limit: null,
  fair_share: 1.5,
  allocated: 1.5,
  requested: 3
};
const project = {
  name: 'vision',
  department: 'research',
  pool: 'default',
  member: true,
  gpu_quota: 1,
  gpu_limit: 4,
  gpu_fair_share: 1.5,
  gpu_allocated: 1.5,
  gpu_requested: 3
};

/** Names, server messages, units and amounts, which are not translated. */
const DATA = [
  '<moved>',
  '<reason>',
  '<help>',
  '<w1>',
  '<act>',
  '<why>',
  '<wait>',
  '<instead>',
  '<lost>',
  'WaitingForQuota',
  'work/',
  'a.ipynb',
  'b.ipynb',
  'c.ipynb',
  'd.ipynb',
  'Untitled',
  '.ipynb',
  'Python 3',
  '(ipykernel)',
  'vision',
  'language',
  'course',
  'research',
  'default',
  'interactive',
  'train',
  'large',
  'For training runs',
  'Simulated A100-80GB',
  'Ready',
  'Not ready',
  'observe',
  'cooperate',
  'limit',
  'suspend',
  'relocate',
  'SIM-GPU',
  'running',
  'pending',
  'reclaim',
  'project',
  'ada',
  'bob',
  'n0',
  'GiB',
  'MiB',
  'GPUs',
  'GPU',
  'AM',
  'PM',
  'gpu',
  'cpu',
  'memory',
  '20GiB',
  'kernel k'
];

await inLab(process.argv[2], async lab => {
  const { page, panel } = lab;
  assert.deepEqual(catalogue().unreadable, [], 'every call names its words');
  await switchLanguage(page);
  await lab.installCellReader();
  await configure({
    what_if: {
      starts_now: false,
      displaces: [],
      reason,
      expected_wait: null,
      alternatives: [{ request: { gpu: 0.5 }, message: '<instead>' }]
    }
  });
  await lab.notebook('a.ipynb');
  const id = await page.evaluate(
    () =>
      [...window.jupyterapp.shell.widgets('main')].find(
        widget => widget.context?.path === 'a.ipynb'
      ).sessionContext.session.kernel.id
  );
  const kernels = [
    kernel({
      kernel_id: id,
      name: 'a.ipynb',
      notice_deadline: new Date(Date.now() + 600_000).toISOString(),
      events: [event],
      utilization: 0.4,
      pending_change: { workload: 'w9', request: { gpu: 1 }, reason }
    }),
    kernel({
      kernel_id: 'k2',
      name: 'b.ipynb',
      state: 'pending',
      ...NONE,
      queue_position: 3,
      reason
    }),
    kernel({
      kernel_id: 'k3',
      name: 'c.ipynb',
      state: 'suspended',
      pinned: true,
      saved_mib: 71680,
      cell_waits: '<wait>',
      busy: false
    }),
    kernel({ kernel_id: 'k4', name: 'd.ipynb', state: 'detached', ...NONE, project: null }),
    ...['granted', 'reclaiming', 'lost'].map((state, i) =>
      kernel({ kernel_id: `k${5 + i}`, name: '', state, busy: true })
    )
  ];
  const devices = [
    device({
      kernels: ['k1'],
      planned: ['k1', 'k9'],
      foreign_mib: 2048,
      foreign_processes: 2,
      utilization: 0.5,
      memory_mib: { total: 81920, guaranteed: 40960, used: 71680, borrowed: 30720 }
    }),
    device({ uuid: 'SIM-GPU-n0-1', healthy: false, health: '<lost>' })
  ];
  await configure({
    status: {
      kernels,
      tiers: ['observe'],
      tier_problems: { limit: '<lost>' },
      scheduler: { reachable: false, version: null, problem: null },
      agent: { reachable: false, version: null, problem: null }
    },
    tables: {
      projects: [project],
      nodes: [node({ devices, cordoned: true, tier_problems: { relocate: '<lost>' } })],
      pools: [pool({ pending: 1 }), pool({ name: 'default', nodes: 0 })],
      workloads: [
        workload({ id: 'k1', kernel_id: 'k1', pods: [pod('n0', 'SIM-GPU-n0-0')] }),
        workload({ id: 'w2', name: '', state: 'pending', reason, queue_position: 1 })
      ],
      queues: [queue],
      evictions: [eviction],
      'history/queues': []
    }
  });

  const found = {};
  const look = async (what, selector) => {
    await page.locator(selector).first().waitFor({ state: 'attached' });
    const words = await untranslated(page, selector, DATA);
    if (words.length > 0) found[what] = words;
  };
  await lab.showPanel();
  await panel
    .locator('[data-kernel-id=k2] details')
    .first()
    .evaluate(one => (one.open = true));
  await panel.locator('[data-kernel-id=k4] .jp-GpuShare-actions button').first().click();
  await panel.locator('form [role=status]').waitFor();
  await panel.locator('.jp-GpuShare-alternatives').first().waitFor();
  await look('sidebar', '#jupyter-gpushare');
  await look('notice', '.jp-GpuShare-banner');
  await look('status bar', '.jp-GpuShare-status');
  await page.locator('.jp-NotebookPanel:visible .jp-GpuShare-control-button').click();
  await look('popover', '.jp-GpuShare-popover');
  await page.keyboard.press('Escape');
  await look('control', '.jp-GpuShare-control');
  void lab.command('gpushare:create-notebook-dialog').catch(() => undefined);
  await look('dialog', '.jp-GpuShare-start');
  await page.locator('.jp-GpuShare-start form .jp-GpuShare-actions button').last().click();
  for (const view of ['map', 'queues', 'workloads', 'nodes', 'pools', 'projects', 'evictions']) {
    await lab.command('gpushare:dashboard', { view });
    await page.locator('.jp-GpuShareDashboard [data-freshness=live]').waitFor();
    await look(view, '.jp-GpuShareDashboard-content');
  }
  await page.locator('.jp-GpuShareDashboard-chooser button').click();
  await look('columns', '.jp-GpuShareDashboard-chooser');

  // labels of commands
  const labels = await page.evaluate(() => {
    const { commands } = window.jupyterapp;
    return commands
      .listCommands()
      .filter(id => id.startsWith('gpushare:'))
      .flatMap(id => [commands.label(id), commands.caption(id)]);
  });
  const english = labels.filter(text => text !== '' && !text.startsWith('⟦'));
  if (english.length > 0) found.commands = english;

  // empty tables
  await configure({
    status: { kernels: [] },
    tables: {
      projects: [],
      nodes: [],
      pools: [],
      workloads: [],
      queues: [],
      evictions: [],
      'history/queues': []
    }
  });
  for (const view of ['map', 'queues', 'workloads', 'pools', 'projects', 'evictions']) {
    await lab.command('gpushare:dashboard', { view });
    await page.locator('.jp-GpuShareDashboard [data-freshness=live]').waitFor();
    await look(`empty ${view}`, '.jp-GpuShareDashboard-content');
  }
  await look('empty sidebar', '#jupyter-gpushare');
  await configure({ down: true });
  await panel.locator('[data-connection=stale]').waitFor();
  await look('stale sidebar', '#jupyter-gpushare');
  assert.deepEqual(found, {});
});
