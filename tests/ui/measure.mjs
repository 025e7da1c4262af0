/**
 * Front-end cost as one JSON object.
 * Usage: node measure.mjs URL delay|idle|many|charts
 *
 * - delay (demo): from an event's time at the scheduler to the frame that shows it in the sidebar
 * - idle (demo): share of a core that our code takes, by Chromium's profiler
 * - many (scripted server): frames while scrolling 500 kernels and a large cluster's dashboard
 * - charts (scripted server): share of a core of the charts of 64 GPUs with an hour of samples, which
 *   change every five seconds: our code, and everything that the page's main thread does
 */
import { inLab } from './browser.mjs';
import { largeCluster } from './cluster_fixtures.mjs';
import { kernel, scriptedServer } from './scripted_server.mjs';

const [url, what] = process.argv.slice(2);
const OURS = '/extensions/jupyter-gpushare/';
const SCHEDULERS = ['requested', 'granted', 'released', 'evicted'];
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const rank = (numbers, share) =>
  [...numbers].sort((a, b) => a - b)[
    Math.min(numbers.length - 1, Math.floor(share * numbers.length))
  ];

/** Delay in ms per scheduler event, for this number of changes of one kernel's share. */
async function delays(lab, changes) {
  const { page } = lab;
  await lab.notebook('a.ipynb');
  await lab.showPanel();
  await page.evaluate(kinds => {
    const seen = new Set();
    window.__delays = [];
    const look = () => {
      const fresh = [...document.querySelectorAll('#jupyter-gpushare li[data-kind] time')].filter(
        time => kinds.includes(time.parentElement.dataset.kind) && !seen.has(time.dateTime)
      );
      fresh.forEach(time => seen.add(time.dateTime));
      // a frame is over when the next one begins
      if (fresh.length > 0)
        requestAnimationFrame(() =>
          requestAnimationFrame(() =>
            fresh.forEach(time => window.__delays.push(Date.now() - Date.parse(time.dateTime)))
          )
        );
    };
    look();
    new MutationObserver(look).observe(document.querySelector('#jupyter-gpushare'), {
      childList: true,
      subtree: true,
      characterData: true
    });
  }, SCHEDULERS);
  for (let i = 0; i < changes; i++) {
    await page.evaluate(
      async gpu => {
        const kernels = await (
          await fetch('/gpushare/api/status', {
            headers: {
              Authorization: `token ${new URL(document.baseURI).searchParams.get('token') ?? ''}`
            }
          })
        ).json();
        const { kernel_id } = kernels.kernels[0];
        const xsrf = /_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? '';
        const answer = await fetch(`/gpushare/api/kernels/${kernel_id}`, {
          method: 'POST',
          headers: { 'X-XSRFToken': xsrf },
          body: JSON.stringify({ gpu })
        });
        if (!answer.ok) throw new Error(await answer.text());
      },
      i % 2 === 0 ? 0.5 : 0.25
    );
    await page.waitForTimeout(700);
  }
  return page.evaluate(() => window.__delays);
}

/** Percentage of one core with our code on the stack. */
async function share(page, ms) {
  const session = await page.context().newCDPSession(page);
  await session.send('Profiler.enable');
  await session.send('Profiler.setSamplingInterval', { interval: 500 });
  await session.send('Profiler.start');
  await page.waitForTimeout(ms);
  const { profile } = await session.send('Profiler.stop');
  await session.detach();
  const parents = new Map(
    profile.nodes.flatMap(node => (node.children ?? []).map(child => [child, node.id]))
  );
  const nodes = new Map(profile.nodes.map(node => [node.id, node]));
  const ours = new Map();
  const isOurs = id => {
    if (id === undefined) return false;
    if (!ours.has(id))
      ours.set(id, nodes.get(id).callFrame.url.includes(OURS) || isOurs(parents.get(id)));
    return ours.get(id);
  };
  const busy = sum(profile.samples.map((id, i) => (isOurs(id) ? profile.timeDeltas[i] : 0)));
  return (100 * busy) / (profile.endTime - profile.startTime);
}

/** Intervals between frames in ms while this element scrolls from top to bottom. */
function frames(page, selector, pixels = 60) {
  return page.evaluate(
    ([selector, pixels]) =>
      new Promise(done => {
        const element = document.querySelector(selector);
        const times = [];
        element.scrollTop = 0;
        const step = now => {
          times.push(now);
          const before = element.scrollTop;
          element.scrollTop += pixels;
          if (times.length < 400 && element.scrollTop > before) requestAnimationFrame(step);
          else done(times.slice(1).map((time, i) => time - times[i]));
        };
        requestAnimationFrame(step);
      }),
    [selector, pixels]
  );
}

const summary = intervals => ({
  frames: intervals.length,
  median: rank(intervals, 0.5),
  p95: rank(intervals, 0.95),
  worst: Math.max(...intervals)
});

/** Percentage of one core that the page's main thread is busy, with painting and all other code. */
async function mainThread(page, ms) {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  const busy = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'TaskDuration').value;
  };
  const before = await busy();
  await page.waitForTimeout(ms);
  const found = (100 * ((await busy()) - before)) / (ms / 1000);
  await session.detach();
  return found;
}

const EVERY_S = 5;
/** The measurements of 8 nodes with 8 GPUs: an hour at first, then what is new. */
function measurements(since) {
  const end = Math.floor(Date.now() / 1000 / EVERY_S) * EVERY_S;
  const begin = since === null ? end - 3600 : Date.parse(since) / 1000;
  const seconds = [];
  // the scheduler answers with at most 360 points
  for (let at = end; at > begin; at -= since === null ? 2 * EVERY_S : EVERY_S) seconds.unshift(at);
  const names = Array.from({ length: 8 }, (_, i) => `n${i}`);
  const wave = (at, i, most) => Math.round(most * (0.5 + 0.5 * Math.sin(at / 60 + i)));
  const line = (node, gpu, metric, most, total, i) => ({
    node,
    gpu,
    metric,
    total,
    values: seconds.map(at => (metric === 'utilization' ? wave(at, i, 100) / 100 : wave(at, i, most)))
  });
  const series = names.flatMap((node, n) => [
    line(node, '', 'cpu', 1, null, n),
    line(node, '', 'host_memory', 200_000, 256_000, n),
    line(node, '', 'saved', 60_000, 64_000, n),
    ...Array.from({ length: 8 }, (_, g) => [`SIM-GPU-${node}-${g}`, 8 * n + g]).flatMap(([gpu, i]) => [
      line(node, gpu, 'utilization', 1, null, i),
      line(node, gpu, 'memory', 81_920, 81_920, i),
      line(node, gpu, 'temperature', 80, null, i),
      line(node, gpu, 'power', 400, null, i)
    ])
  ]);
  return { times: seconds.map(at => new Date(1000 * at).toISOString()), series, left_out: 0 };
}

function manyKernels(count) {
  const states = ['attached', 'suspended', 'pending', 'detached'];
  return Array.from({ length: count }, (_, i) =>
    kernel({ kernel_id: `k${i}`, name: `work/notebook-${i}.ipynb`, state: states[i % 4] })
  );
}

await inLab(
  url,
  async lab => {
    const { page } = lab;
    if (what === 'delay') {
      const found = await delays(lab, 30);
      console.log(
        JSON.stringify({
          events: found.length,
          median: rank(found, 0.5),
          p95: rank(found, 0.95),
          worst: Math.max(...found)
        })
      );
    }
    if (what === 'idle') {
      for (const name of ['a.ipynb', 'b.ipynb']) {
        await lab.notebook(name);
        await lab.done(name, await lab.run(name, '%gpu request 0.5'));
      }
      await lab.showPanel();
      await page.waitForTimeout(3000);
      const panel = await share(page, 20_000);
      await lab.command('gpushare:dashboard', { view: 'map' });
      await page.waitForTimeout(3000);
      const dashboard = await share(page, 20_000);
      await lab.front('a.ipynb');
      await lab.command('application:toggle-right-area');
      await page.waitForTimeout(1000);
      const hidden = await share(page, 20_000);
      console.log(JSON.stringify({ panel, dashboard, hidden }));
    }
    if (what === 'charts') {
      const script = scriptedServer(url);
      await script.configure({ status: { kernels: [] }, tables: largeCluster(8, 8) });
      await lab.notebook('a.ipynb');
      const hiddenThread = await mainThread(page, 20_000);
      await page.route(/gpushare\/api\/history\/nodes/, route =>
        route.fulfill({
          json: measurements(new URL(route.request().url()).searchParams.get('since'))
        })
      );
      await lab.command('gpushare:dashboard', { view: 'charts' });
      await page.locator('[data-chart=gpu-power] canvas').waitFor();
      await page.waitForTimeout(6000); // the hour is drawn once
      const visible = await share(page, 30_000);
      const visibleThread = await mainThread(page, 30_000);
      if (process.env.GPUSHARE_UI_RESULTS) await lab.shot('64-gpus', process.env.GPUSHARE_UI_RESULTS);
      await lab.front('a.ipynb');
      await page.waitForTimeout(1000);
      const hidden = await share(page, 20_000);
      console.log(JSON.stringify({ visible, visibleThread, hiddenThread, hidden }));
    }
    if (what === 'many') {
      const script = scriptedServer(url);
      await script.configure({ status: { kernels: manyKernels(500) } });
      await lab.showPanel();
      await lab.card('notebook-0.ipynb').waitFor();
      await page.waitForTimeout(1000);
      const scroller = await page.evaluate(() => {
        const inside = [...document.querySelectorAll('#jupyter-gpushare, #jupyter-gpushare *')];
        const found = inside.find(
          node =>
            node.scrollHeight > node.clientHeight + 500 &&
            /auto|scroll/.test(getComputedStyle(node).overflowY)
        );
        found.dataset.measured = 'yes';
        return '[data-measured=yes]';
      });
      const sidebar = summary(await frames(page, scroller));
      await script.configure({ status: { kernels: [] }, tables: largeCluster(500, 8) });
      const views = {};
      for (const view of ['map', 'workloads', 'nodes']) {
        await lab.command('gpushare:dashboard', { view });
        await page.locator(`[data-view=${view}][data-freshness=live]`).waitFor();
        await page.waitForTimeout(1000);
        views[view] = summary(await frames(page, '.jp-GpuShareDashboard-scroll'));
      }
      console.log(JSON.stringify({ sidebar, ...views }));
    }
  },
  { width: 1360, height: 820 }
);
