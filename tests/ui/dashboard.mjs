/** The dashboard of a running product: node dashboard.mjs URL [FOLDER FOR PICTURES] */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { noSeriousProblems, THEMES, useTheme } from './axe.mjs';
import { inLab } from './browser.mjs';

const [url, shots] = process.argv.slice(2);
const FILL = 'from jupyter_gpushare import simgpu\ndata = simgpu.alloc("70GiB")\ndata.fill(7)';

await inLab(
  url,
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard');
    const picture = async name => shots && lab.shot(`dashboard-${name}`, shots);
    const turnTo = async name => board.getByRole('tab', { name, exact: true }).click();
    const shows = (what, where = board) => where.getByText(what).first().waitFor();
    const gpu = number => board.locator(`[data-uuid$="-${number}"]`);
    const row = name => board.getByRole('row').filter({ hasText: name }).first();

    // it is found where people look, before anything runs
    await page.locator('.jp-LauncherCard', { hasText: 'GPU dashboard' }).click();
    await shows('Nobody is here.', gpu(0));
    await shows('simulated');

    // two halves burst, planned on one GPU; a third waits
    for (const name of ['a.ipynb', 'b.ipynb']) {
      await lab.notebook(name);
      await lab.done(name, await lab.run(name, '%gpu request 0.5'));
      await lab.done(name, await lab.run(name, FILL));
    }
    await lab.notebook('c.ipynb');
    await lab.done(
      'c.ipynb',
      await lab.run('c.ipynb', '%gpu request 2 --priority build --no-wait')
    );
    await lab.command('gpushare:dashboard');
    await shows('1 / 2 GPUs allocated');
    await shows('1 workload waits');
    await shows(/^a\.ipynb \(½ GPU\) · 70 GiB · 30 GiB borrowed/, gpu(0));
    await shows(/70 GiB of 80 GiB used · 40 GiB guaranteed · 30 GiB borrowed/, gpu(1));
    await shows('planned here: b.ipynb (½ GPU)', gpu(0));
    await picture('map');

    // tabs by keyboard alone
    await board.getByRole('tab', { name: 'Map' }).focus();
    await page.keyboard.press('ArrowRight');
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Queues');
    await shows(/allocated 1 GPUs now/);
    await board.getByRole('button', { name: 'vision' }).press('Enter');
    await shows('vision in node pool default, GPUs over time');
    await board
      .getByRole('img', { name: /^vision in node pool default: allocated 1 GPUs now/ })
      .waitFor();
    assert.equal(
      await row('vision').getAttribute('data-depth'),
      '1',
      'a project stands below its department'
    );
    if (shots) await happenings(lab);
    await picture('queues');

    // why somebody waits; sorted by a header; filtered
    await turnTo('Workloads');
    await shows(/non-preemptible request needs 2 more/, row('c.ipynb'));
    const names = () => board.locator('td[data-column=name]').allTextContents();
    const sort = board.getByRole('button', { name: 'Name' });
    await sort.click();
    assert.deepEqual(await names(), ['a.ipynb', 'b.ipynb', 'c.ipynb']);
    await sort.press('Enter');
    assert.deepEqual(await names(), ['c.ipynb', 'b.ipynb', 'a.ipynb']);
    assert.equal(
      await board.getByRole('columnheader', { name: 'Name' }).getAttribute('aria-sort'),
      'descending'
    );
    await board.getByRole('searchbox').fill('b.ipynb');
    assert.deepEqual(await names(), ['b.ipynb']);
    await board.getByRole('searchbox').fill('');
    await picture('workloads');

    // chosen columns are shown and downloaded, exactly and in the table's order
    await board.getByRole('button', { name: 'Columns' }).click();
    for (const label of [
      'State',
      'Person',
      'Node',
      'Place',
      'Still waits about',
      'Asked',
      'Why it waits'
    ]) {
      await board.getByRole('checkbox', { name: label, exact: true }).uncheck();
    }
    await page.keyboard.press('Escape');
    assert.deepEqual(await board.getByRole('columnheader').allTextContents(), [
      'Name ▼',
      'Project',
      'GPUs'
    ]);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      board.getByRole('button', { name: 'Download CSV' }).click()
    ]);
    assert.equal(download.suggestedFilename(), 'workloads.csv');
    const lines = readFileSync(await download.path(), 'utf8')
      .trim()
      .split('\n');
    assert.deepEqual(
      [lines[0], ...lines.slice(1).sort()],
      ['name,project,request.gpu', 'a.ipynb,vision,0.5', 'b.ipynb,vision,0.5', 'c.ipynb,vision,2']
    );

    // every other view has its rows or says that there are none
    await turnTo('Nodes');
    await shows('Ready', board.getByRole('row').nth(1));
    await turnTo('Node pools');
    await shows('default', board.getByRole('row').nth(1));
    await turnTo('Projects');
    await shows('course', row('course'));
    await turnTo('Evictions');
    await shows(/Nobody has been evicted/);

    // what is seen by nobody is asked by nobody
    const calls = [];
    page.on(
      'request',
      request =>
        /gpushare\/api\/(nodes|workloads|evictions)/.test(request.url()) &&
        calls.push(request.url())
    );
    await lab.front('a.ipynb');
    await page.waitForTimeout(300); // what was on its way when it was hidden
    calls.length = 0;
    await lab.done('a.ipynb', await lab.run('a.ipynb', 'data.free()'));
    await lab.card('a.ipynb').count();
    assert.deepEqual(calls, []);
    await lab.command('gpushare:dashboard', { view: 'map' });
    await shows(/^a\.ipynb \(½ GPU\) · 0 MiB/, gpu(0));

    // themes, a narrow window, and no serious problem for anybody in any of them
    for (const theme of THEMES) {
      await useTheme(page, theme);
      for (const view of ['map', 'queues', 'workloads']) {
        await lab.command('gpushare:dashboard', { view });
        await board.locator(`[data-view=${view}][data-freshness=live]`).waitFor();
        await noSeriousProblems(page, '.jp-GpuShareDashboard', `${view} in ${theme}`);
        if (view === 'map' && theme === 'JupyterLab Dark') await picture('map-dark');
      }
    }
    await useTheme(page, THEMES[0]);
    await page.setViewportSize({ width: 640, height: 700 });
    await lab.command('gpushare:dashboard', { view: 'map' });
    const overflow = await board.evaluate(node => node.scrollWidth - node.clientWidth);
    assert.ok(overflow <= 0, `nothing sticks out of a narrow dashboard (${overflow} px do)`);
    await page.setViewportSize({ width: 1280, height: 800 });

    // the server goes away: what is shown is said to be old; it comes back by itself
    await page.route(/gpushare\/api\//, route => route.abort('connectionfailed'));
    await lab.command('gpushare:dashboard', { view: 'nodes' });
    await shows(/Below is what was true at/);
    await page.unroute(/gpushare\/api\//);
    await board.getByRole('button', { name: 'Try again' }).click();
    await board.locator('[data-freshness=live]').waitFor();

    assert.deepEqual(lab.complaints, []);
  },
  { width: 1360, height: 820 }
);

/** Something to see over time: one gives its share back, and asks again. A picture of time takes time: the scheduler samples every five seconds. */
async function happenings(lab) {
  await lab.page.locator('.jp-GpuShareDashboard-time select').selectOption('15');
  for (const ask of ['%gpu release', '%gpu request 0.5']) {
    await lab.page.waitForTimeout(14_000);
    await lab.done('b.ipynb', await lab.run('b.ipynb', ask));
  }
  await lab.done('b.ipynb', await lab.run('b.ipynb', FILL));
  await lab.page.waitForTimeout(14_000);
  await lab.command('gpushare:dashboard', { view: 'queues' });
}
