/**
 * The people of a course in the dashboard: sixty rows, actions by keyboard, live updates (scripted
 * server). Usage: node people.mjs URL
 */
import assert from 'node:assert/strict';

import { noSeriousProblems } from './axe.mjs';
import { inLab } from './browser.mjs';
import { scriptedServer, until } from './scripted_server.mjs';

const { configure, calls } = scriptedServer(process.argv[2]);
const since = new Date().toISOString();
const notebook = changes => ({
  id: 'w0',
  name: 'a.ipynb',
  state: 'idle',
  gpu: 0.5,
  since,
  position: null,
  next_turn: false,
  ...changes
});
const person = (number, changes) => ({
  project: 'course',
  user: `student-${String(number).padStart(2, '0')}`,
  state: 'idle',
  since,
  gpu: 0.5,
  gpu_limit: 1,
  turns_today: number,
  gpu_minutes_today: number / 2,
  notebook_limit: 3,
  pending_limit: null,
  managed: true,
  notebooks: [notebook({ id: `w${number}`, name: `work/lab-${number}.ipynb` })],
  ...changes
});
const waiting = (number, changes) =>
  person(number, {
    state: 'waiting',
    gpu: 0,
    notebooks: [
      notebook({ id: `w${number}`, state: 'waiting', gpu: 0, position: 3, ...changes })
    ]
  });
const course = changes => ({
  nodes: [],
  workloads: [],
  people: [
    waiting(1, changes),
    ...Array.from({ length: 58 }, (_, i) => person(i + 2)),
    person(60, { state: 'running', notebooks: [] })
  ]
});

await inLab(
  process.argv[2],
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard');
    const row = user => board.getByRole('row').filter({ has: page.getByRole('rowheader', { name: user }) });
    await configure({ tables: { nodes: [], workloads: [], people: [] } });
    await lab.command('gpushare:dashboard', { view: 'people' });
    await board.getByText(/No people: no project/).waitFor();
    await configure({ tables: course({}) });
    await board.getByText('60 people · 1 running · 1 waiting · 58 idle').waitFor();
    assert.equal(await board.getByRole('rowheader').count(), 60);

    // a row: state, notebook by name, limit, turns and minutes
    await row('student-02').getByText('lab-2.ipynb (idle)').waitFor();
    await row('student-02').getByText('0.5 / 1').waitFor();

    // next turn, by keyboard
    await board.getByRole('button', { name: 'Next turn for student-01' }).focus();
    await page.keyboard.press('Enter');
    let found = [];
    await until('next turn is sent', async () => {
      found = [...found, ...(await calls())];
      return found.some(call => call.path === 'workloads/w1/actions/next-turn');
    });
    await configure({ tables: course({ next_turn: true, position: 1 }) });
    await row('student-01').getByText(/waiting, next turn/).waitFor();
    assert.equal(await board.getByRole('button', { name: 'Next turn for student-01' }).count(), 0);

    // release asks first, and the focus is on the safe answer
    await board.getByRole('button', { name: 'Release a GPU of student-03' }).focus();
    await page.keyboard.press('Enter');
    await row('student-03').getByRole('button', { name: 'Keep' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Keep');
    await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');
    await until('release is sent', async () => {
      found = [...found, ...(await calls())];
      return found.some(call => call.path === 'workloads/w3/actions/release');
    });

    // a limit; Escape changes nothing
    await board.getByRole('button', { name: 'Limit student-04' }).click();
    await page.keyboard.press('Escape');
    await board.getByRole('button', { name: 'Limit student-04' }).click();
    await row('student-04').getByRole('spinbutton').fill('0.5');
    await page.keyboard.press('Enter');
    await until('the limit is sent', async () => {
      found = [...found, ...(await calls())];
      return found.some(call => call.path === 'people/limit');
    });
    assert.deepEqual(
      found.filter(call => call.path === 'people/limit').map(call => call.body),
      [{ project: 'course', user: 'student-04', gpu: 0.5 }]
    );

    // a refusal is shown
    await configure({
      tables: course({}),
      refusal: { code: 'not-allowed', message: 'only a manager may do this' }
    });
    await board.getByRole('button', { name: 'Next turn for student-01' }).click();
    await board.getByRole('alert').getByText('only a manager may do this').waitFor();

    await board.getByRole('searchbox').fill('student-6');
    await board.getByText('1 person · 1 running').waitFor();
    await noSeriousProblems(page, '.jp-GpuShareDashboard');
    assert.deepEqual(
      lab.pageErrors.filter(line => !/status of 40[04]/.test(line)),
      []
    );
  },
  { width: 1360, height: 820 }
);
