/** The client of the scripted server (scripted_server.py). */
import assert from 'node:assert/strict';

const headers = { Authorization: 'token scripted' };

export function scriptedServer(url) {
  const script = `${new URL(url).origin}/gpushare/script`;
  const kept = [];
  const asked = async () => {
    const found = await (await fetch(script, { headers })).json();
    kept.push(...found.calls);
    return found;
  };
  const taken = async which => {
    await asked();
    const found = kept.filter(which);
    found.forEach(call => kept.splice(kept.indexOf(call), 1));
    return found;
  };
  return {
    /** Set the server's responses and send them to every page. */
    configure: body => fetch(script, { method: 'POST', headers, body: JSON.stringify(body) }),
    asked,
    /** The calls of the page since the last time, without what-if requests. */
    calls: () => taken(call => call.path !== 'what-if'),
    /** The what-if requests since the last time. */
    whatIfRequests: async () =>
      (await taken(call => call.path === 'what-if')).map(call => call.body)
  };
}

/** Wait until the condition holds. */
export async function until(what, check) {
  for (let tries = 0; tries < 150; tries++) {
    if (await check()) return;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  assert.fail(what);
}

/** A kernel that borrows memory; name only what a test is about. */
export const kernel = changes => ({
  kernel_id: 'k1',
  name: 'work/a.ipynb',
  state: 'attached',
  project: 'vision',
  request: { gpu: 0.5, gpu_memory_mib: null },
  limit: { gpu: 1, gpu_memory_mib: null },
  node: 'n0',
  planned_gpu: 'SIM-GPU-n0-0',
  gpu_uuid: 'SIM-GPU-n0-1',
  simulated: true,
  pinned: false,
  busy: true,
  memory_mib: { guaranteed: 40960, used: 71680, borrowed: 30720 },
  gpu_memory_total_mib: 81920,
  reason: null,
  queue_position: null,
  notice_deadline: null,
  generation: 1,
  workload: 'w1',
  events: [],
  ...changes
});
