/** Creates a history of waits, for estimates, over the demo's REST API. */
import assert from 'node:assert/strict';

/** More than the two cycles in which a request that fits starts. */
const WAITED_MS = 2_500;

/** This many times, one kernel has both GPUs and another one waits for one of them. */
export async function createWaitHistory(url, times) {
  const { origin, searchParams } = new URL(url);
  const rest = async (verb, path, body) => {
    const headers = { Authorization: `token ${searchParams.get('token')}` };
    const answer = await fetch(`${origin}/${path}`, {
      method: verb,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body)
    });
    assert.ok(answer.ok, `${verb} ${path}: ${answer.status} ${await answer.clone().text()}`);
    return answer.status === 204 ? null : answer.json();
  };
  const kernel = async () => (await rest('POST', 'api/kernels', { name: 'python3' })).id;
  const until = async (id, states) => {
    for (;;) {
      if (states.includes((await rest('GET', `gpushare/api/kernels/${id}`)).state)) {
        return;
      }
      await new Promise(done => setTimeout(done, 100));
    }
  };
  const [holder, waiter] = [await kernel(), await kernel()];
  for (let time = 0; time < times; time++) {
    await rest('POST', `gpushare/api/kernels/${holder}`, { gpu: 2 });
    await until(holder, ['granted', 'attached']);
    await rest('POST', `gpushare/api/kernels/${waiter}`, { gpu: 1 });
    await new Promise(done => setTimeout(done, WAITED_MS));
    await rest('DELETE', `gpushare/api/kernels/${holder}`);
    await until(waiter, ['granted', 'attached']);
    await rest('DELETE', `gpushare/api/kernels/${waiter}`);
  }
  await rest('DELETE', `api/kernels/${holder}`);
  await rest('DELETE', `api/kernels/${waiter}`);
}
