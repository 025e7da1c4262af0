/**
 * Cells of a kernel that the server restarted do not stay busy.
 * Usage: node killed_cells.mjs URL
 *
 * The kernel and its restart are real; the scripted server reports a reclaim as the reason.
 */
import assert from 'node:assert/strict';

import { inLab } from './browser.mjs';

const [url] = process.argv.slice(2);
const server = new URL(url).origin;
const headers = { Authorization: 'token scripted' };
const configure = body =>
  fetch(`${server}/gpushare/script`, { method: 'POST', headers, body: JSON.stringify(body) });

await inLab(url, async lab => {
  await lab.notebook('a.ipynb');
  const [{ id }] = await (await fetch(`${server}/api/kernels`, { headers })).json();
  const kernel = events => ({
    kernel_id: id,
    name: 'a.ipynb',
    state: 'attached',
    project: 'vision',
    request: { gpu: 0.5, gpu_memory_mib: null },
    limit: { gpu: null, gpu_memory_mib: null },
    node: 'n0',
    planned_gpu: 'SIM-GPU-n0-0',
    gpu_uuid: 'SIM-GPU-n0-0',
    simulated: true,
    pinned: false,
    busy: true,
    memory_mib: { guaranteed: 40960, used: 0, borrowed: 0 },
    gpu_memory_total_mib: 81920,
    reason: null,
    queue_position: null,
    notice_deadline: null,
    generation: 1,
    workload: 'w1',
    events
  });
  await configure({ status: { kernels: [kernel([])] } });
  await lab.showPanel();
  await lab.card('a.ipynb').waitFor();

  const running = await lab.run('a.ipynb', 'print("begun")\nimport time\ntime.sleep(3600)');
  await lab.page.waitForFunction(
    index => window.__cell('a.ipynb', index)?.text.includes('begun'),
    running
  );
  const queued = await lab.run('a.ipynb', 'print("never")');
  await fetch(`${server}/api/kernels/${id}/restart`, { method: 'POST', headers });
  assert.equal((await lab.cell('a.ipynb', running)).busy, true, 'JupyterLab alone lets it spin');

  const killed = {
    time: new Date().toISOString(),
    kind: 'killed',
    message: 'Its GPU memory was taken back for c.ipynb and could not be saved.'
  };
  await configure({ status: { kernels: [kernel([killed])] } });
  assert.equal((await lab.done('a.ipynb', running)).prompt, '[ ]:');
  assert.equal((await lab.done('a.ipynb', queued)).prompt, '[ ]:');
  await lab.page.locator('.Toastify__toast', { hasText: 'Its variables are lost' }).waitFor();

  // the notebook continues on the same WebSocket
  const next = await lab.done('a.ipynb', await lab.run('a.ipynb', 'print("alive")'));
  assert.equal(next.text.trim(), 'alive');
  assert.equal(next.prompt, '[1]:');
  assert.deepEqual(await lab.dialogs(), []);
  assert.deepEqual(lab.pageErrors, []);
});
