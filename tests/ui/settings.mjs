/**
 * The settings, changed in JupyterLab's settings editor: the default share, and which notifications
 * are shown (scripted server).
 * Usage: node settings.mjs URL
 */
import assert from 'node:assert/strict';

import { noSeriousProblems } from './axe.mjs';
import { inLab } from './browser.mjs';
import { kernel, scriptedServer, until } from './scripted_server.mjs';

const { configure } = scriptedServer(process.argv[2]);
const none = changes =>
  kernel({
    kernel_id: 'k1',
    name: 'a.ipynb',
    state: 'detached',
    request: { gpu: null, gpu_memory_mib: null },
    limit: { gpu: null, gpu_memory_mib: null },
    node: null,
    planned_gpu: null,
    gpu_uuid: null,
    project: null,
    workload: null,
    memory_mib: { guaranteed: 0, used: 0, borrowed: 0 },
    gpu_memory_total_mib: 0,
    ...changes
  });

await inLab(process.argv[2], async lab => {
  const { page, panel } = lab;
  const editor = page.locator('#setting-editor .jp-SettingsPanel');
  const form = panel.getByRole('form');
  const amount = form.getByRole('textbox').first();
  /** Opens the form of a notebook without a share; returns what it offers. */
  const offered = async () => {
    await lab.showPanel();
    await lab.card('a.ipynb').getByRole('button', { name: 'Request a GPU share…' }).click();
    await amount.waitFor();
    return amount.inputValue();
  };
  const closeForm = () => form.getByRole('button', { name: 'Cancel' }).click();
  const edit = async () => {
    await lab.command('settingeditor:open', { query: 'GPU share' });
    await editor.getByText('Default share').first().waitFor();
  };
  await configure({ status: { kernels: [none()] } });
  await lab.showPanel();
  assert.equal(await offered(), '0.5');
  await closeForm();

  // every kind of notification has a name (JupyterLab gives none to a text field)
  await edit();
  await editor.getByRole('group', { name: 'Which notifications' }).waitFor();
  await noSeriousProblems(page, '[id$=plugin_notificationKinds]');

  // the default share: GPUs, memory, a preset
  for (const [share, amount] of [['0.25', '0.25'], ['20GiB', '20GiB'], ['large', '2']]) {
    await edit();
    await editor.locator('input[id$=_defaultShare]').fill(share);
    await isSaved(page, { defaultShare: share });
    assert.equal(await offered(), amount);
    await closeForm();
  }

  // one kind of notification is switched off, then all of them, then none
  const toast = page.locator('.Toastify__toast');
  const tell = async (kind, message) => {
    const event = { time: new Date().toISOString(), kind, message };
    await configure({ status: { kernels: [none({ events: [event] })] } });
    await panel.getByText(message).first().waitFor();
  };
  await edit();
  await editor.getByRole('checkbox', { name: 'Moved to another GPU' }).uncheck();
  await isSaved(page, { notificationKinds: { moved: false } });
  await tell('moved', 'First move.');
  await tell('evicted', 'First eviction.');
  await toast.filter({ hasText: 'First eviction.' }).waitFor();
  assert.equal(await toast.filter({ hasText: 'First move.' }).count(), 0);
  await editor.getByRole('checkbox', { name: 'Notifications', exact: true }).uncheck();
  await isSaved(page, { notifications: false });
  await tell('evicted', 'Second eviction.');
  await editor.getByRole('checkbox', { name: 'Notifications', exact: true }).check();
  await editor.getByRole('checkbox', { name: 'Moved to another GPU' }).check();
  await isSaved(page, { notifications: true, notificationKinds: { moved: true } });
  await tell('moved', 'Second move.');
  await toast.filter({ hasText: 'Second move.' }).waitFor();
  assert.equal(await toast.filter({ hasText: 'Second eviction.' }).count(), 0);
  assert.deepEqual(lab.pageErrors, []);
});

/** Wait until the page's settings have these values: the editor saves after a while. */
async function isSaved(page, wanted) {
  const registry = await page.evaluateHandle(() => {
    const app = window.jupyterapp;
    const tokens = [...app.pluginRegistry._services.keys()];
    return app.resolveRequiredService(tokens.find(one => one.name.endsWith(':ISettingRegistry')));
  });
  await until(`the settings are ${JSON.stringify(wanted)}`, () =>
    registry.evaluate(async (registry, wanted) => {
      const { composite } = await registry.load('jupyter-gpushare:plugin');
      const has = (found, value) =>
        typeof value === 'object'
          ? Object.keys(value).every(key => has(found?.[key], value[key]))
          : found === value;
      return has(composite, wanted);
    }, wanted)
  );
}
