/**
 * Bookings in the dashboard: what is free, booking by drag and by keyboard, refusals, cancelling
 * (scripted server). Usage: node bookings.mjs URL
 */
import assert from 'node:assert/strict';

import { noSeriousProblems } from './axe.mjs';
import { inLab } from './browser.mjs';
import { scriptedServer, until } from './scripted_server.mjs';

const { configure, calls } = scriptedServer(process.argv[2]);
// Next week, so that no hour is over; in the time zone of the browser, which is this machine's.
const today = new Date();
const at = (day, hour) =>
  new Date(
    today.getFullYear(),
    today.getMonth(),
    today.getDate() - ((today.getDay() + 6) % 7) + 7 + day,
    hour
  );
const booking = changes => ({
  id: 'b-1',
  name: 'Lab',
  project: 'course',
  pool: 'default',
  gpu: 2,
  start: '2027-01-05 14:00',
  hours: 2,
  time_zone: 'Europe/Berlin',
  repeats: 'every Tuesday',
  who: 'project',
  user: '',
  source: 'bookable',
  next_start: null,
  next_end: null,
  state: 'upcoming',
  problem: '',
  may_cancel: true,
  times: [],
  ...changes
});
const tables = bookings => ({
  nodes: [],
  workloads: [],
  pools: [],
  projects: [{ name: 'course', pool: 'default' }],
  bookings
});
const calendar = {
  pool: 'default',
  entries: [
    {
      booking: 'b-1',
      name: 'Lab',
      project: 'course',
      gpu: 2,
      start: at(1, 14).toISOString(),
      end: at(1, 16).toISOString(),
      state: 'upcoming',
      mine: true,
      may_cancel: true
    }
  ],
  free: [
    { start: at(0, 0).toISOString(), end: at(1, 14).toISOString(), bookable: 2, quota: {} },
    {
      start: at(1, 14).toISOString(),
      end: at(1, 16).toISOString(),
      bookable: 0,
      quota: { course: 0.5 }
    },
    { start: at(1, 16).toISOString(), end: at(7, 0).toISOString(), bookable: 2, quota: {} }
  ]
};

await inLab(
  process.argv[2],
  async lab => {
    const { page } = lab;
    const board = page.locator('.jp-GpuShareDashboard');
    const cell = (day, hour) => board.locator(`[data-cell="${day}-${hour}"]`);
    const form = board.getByRole('form', { name: 'New booking' });
    const found = [];
    const booked = async which => {
      found.push(...(await calls()));
      return found.filter(call => call.method === 'POST' && call.path === 'bookings').find(which);
    };

    await configure({ tables: tables([]), calendar });
    await lab.command('gpushare:dashboard', { view: 'bookings' });
    await board.getByText('No bookings.').waitFor();
    await configure({ tables: tables([booking({})]), calendar });
    await board.getByRole('rowheader', { name: 'Lab' }).waitFor();
    await board.getByText('2027-01-05 14:00 Europe/Berlin, 2 h, every Tuesday').waitFor();

    // what is over has no number; next week shows what is free, and what is booked
    await board.getByRole('button', { name: 'Next week' }).click();
    await until('next week is shown', async () =>
      /2 GPUs free/.test(await cell(0, 9).getAttribute('aria-label'))
    );
    assert.match(await cell(1, 14).getAttribute('aria-label'), /0.5 GPUs free, booked: Lab 2/);
    assert.match(await cell(1, 16).getAttribute('aria-label'), /2 GPUs free$/);

    // drag over three hours, check, then book
    await cell(2, 10).hover();
    await page.mouse.down();
    await cell(2, 12).hover();
    await page.mouse.up();
    await form.waitFor();
    assert.equal(await form.getByRole('spinbutton', { name: 'Hours' }).inputValue(), '3');
    await form.getByRole('spinbutton', { name: 'GPUs' }).fill('1.5');
    await configure({
      calendar,
      fit: { fits: false, message: 'It does not fit from 10:00 to 11:00.', booking: null }
    });
    await form.getByRole('button', { name: 'Check' }).click();
    await form.getByRole('status').getByText('It does not fit from 10:00 to 11:00.').waitFor();
    const asked = await booked(call => call.body.dry_run);
    assert.deepEqual(
      [asked.body.gpu, asked.body.hours, asked.body.project, asked.body.start.slice(11)],
      [1.5, 3, 'course', '10:00']
    );
    await configure({ fit: { fits: true, message: 'Booked.', booking: booking({}) } });
    await form.getByRole('button', { name: 'Book', exact: true }).click();
    await form.waitFor({ state: 'detached' });
    assert.equal((await booked(call => !call.body.dry_run)).body.hours, 3);

    // the same by keyboard: arrows move, Enter chooses, Shift extends; Escape closes the form
    await cell(2, 10).focus();
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await page.keyboard.press('Shift+ArrowDown');
    await form.waitFor();
    assert.equal(await form.getByRole('spinbutton', { name: 'Hours' }).inputValue(), '2');
    await noSeriousProblems(page, '.jp-GpuShareDashboard');
    await form.getByLabel('Name').focus();
    await page.keyboard.press('Escape');
    await form.waitFor({ state: 'detached' });

    // cancelling
    await board.getByRole('button', { name: 'Cancel Lab' }).click();
    await until('it is cancelled', async () => {
      found.push(...(await calls()));
      return found.some(call => call.method === 'DELETE' && call.path === 'bookings/b-1');
    });

    // a refusal is shown
    await configure({ refusal: { code: 'not-allowed', message: 'only managers book' } });
    await cell(3, 9).click();
    await form.getByRole('button', { name: 'Book', exact: true }).click();
    await form.getByRole('status').getByText('only managers book').waitFor();
    await noSeriousProblems(page, '.jp-GpuShareDashboard');
    assert.deepEqual(
      lab.pageErrors.filter(line => !/status of 40[04]/.test(line)),
      []
    );
  },
  { width: 1360, height: 820 }
);
