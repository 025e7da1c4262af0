/**
 * axe-core finds no serious problem in any theme, with the scripted server.
 * Usage: node accessibility.mjs URL
 */
import assert from 'node:assert/strict';

import { seriousProblems, THEMES, useTheme } from './axe.mjs';
import { inLab } from './browser.mjs';
import { kernel, scriptedServer } from './scripted_server.mjs';

const { configure } = scriptedServer(process.argv[2]);
const NONE = {
  request: { gpu: null, gpu_memory_mib: null },
  node: null,
  gpu_uuid: null,
  memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
  gpu_memory_total_mib: 0
};
const event = {
  time: new Date().toISOString(),
  kind: 'moved',
  message: 'Moved to GPU 1 with all of its memory.'
};
const reason = {
  code: 'WaitingForQuota',
  message: 'Project vision uses all of its quota.',
  numbers: { quota: 1 },
  helps: [{ change: 'priority_class', to: 'train', message: 'Use priority train.' }]
};
const project = {
  name: 'vision',
  department: 'research',
  pool: 'default',
  member: true,
  gpu_quota: 1,
  gpu_limit: null,
  gpu_fair_share: 1.5,
  gpu_allocated: 1.5,
  gpu_requested: 3
};

await inLab(
  process.argv[2],
  async lab => {
    const { page, panel } = lab;
    await lab.notebook('a.ipynb');
    const id = await page.evaluate(
      () =>
        [...window.jupyterapp.shell.widgets('main')].find(
          widget => widget.context?.path === 'a.ipynb'
        ).sessionContext.session.kernel.id
    );
    await configure({
      status: {
        scheduler: { reachable: false, version: null, problem: 'the scheduler cannot be reached' },
        kernels: [
          kernel({
            kernel_id: id,
            name: 'a.ipynb',
            notice_deadline: new Date(Date.now() + 600_000).toISOString(),
            events: [event]
          }),
          kernel({
            kernel_id: 'k2',
            name: 'b.ipynb',
            state: 'pending',
            ...NONE,
            queue_position: 3,
            reason
          }),
          kernel({ kernel_id: 'k3', name: 'c.ipynb', state: 'suspended', pinned: true }),
          kernel({ kernel_id: 'k4', name: 'd.ipynb', state: 'detached', ...NONE, project: null })
        ]
      },
      tables: { projects: [project] }
    });
    await lab.showPanel();
    await lab.card('d.ipynb').getByRole('button', { name: 'Request a GPU share…' }).click();
    await lab.card('a.ipynb').getByText('Events').click();
    await page.locator('.jp-GpuShare-banner').waitFor();
    const parts = {
      sidebar: '#jupyter-gpushare',
      notice: '.jp-GpuShare-banner',
      'control in the toolbar': '.jp-GpuShare-control-button'
    };
    const problems = {};
    const look = async (what, selector) => {
      const found = await seriousProblems(page, selector);
      if (found.length > 0) problems[what] = found;
    };
    for (const theme of THEMES) {
      await useTheme(page, theme);
      for (const [name, selector] of Object.entries(parts))
        await look(`${name} in ${theme}`, selector);
      await page.locator('.jp-NotebookPanel:visible .jp-GpuShare-control-button').click();
      const popover = page.getByRole('dialog', { name: "This notebook's GPU share" });
      await popover.waitFor();
      await popover.evaluate(node => node.setAttribute('data-looked-at', 'popover'));
      await look(`popover in ${theme}`, '[data-looked-at=popover]');
      await page.keyboard.press('Escape');
      await popover.waitFor({ state: 'detached' });
      void lab.command('gpushare:create-notebook-dialog').catch(() => undefined);
      const dialog = page.locator('.jp-Dialog', { hasText: 'New notebook with a GPU share' });
      await dialog.getByRole('form').waitFor();
      await look(`dialog in ${theme}`, '.jp-Dialog form');
      await dialog.getByRole('form').getByRole('button', { name: 'Cancel' }).click();
      await dialog.waitFor({ state: 'detached' });
    }
    assert.deepEqual(problems, {});
    assert.ok((await panel.locator('.jp-GpuShare-card').count()) === 4);
    assert.deepEqual(lab.pageErrors, []);
  },
  { width: 1360, height: 900 }
);
