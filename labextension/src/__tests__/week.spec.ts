import { requestOf } from '../dashboard/bookingForm';
import { addDays, mondayOf, spanTo, wallTime, weekOf } from '../dashboard/week';

const monday = new Date(2027, 0, 4);
const hour = (day: number, at: number): string =>
  new Date(2027, 0, 4 + day, at).toISOString();

describe('a week of bookings', () => {
  it('begins on Monday', () => {
    expect(mondayOf(new Date(2027, 0, 10, 23)).getTime()).toBe(monday.getTime());
    expect(mondayOf(new Date(2027, 0, 11)).getTime()).toBe(addDays(monday, 7).getTime());
  });

  it('shows per hour what is booked, and the least that is free', () => {
    const entry = {
      booking: 'b',
      name: 'Lab',
      project: 'course',
      gpu: 2,
      start: hour(1, 14),
      end: hour(1, 16),
      state: 'upcoming' as const,
      mine: true,
      may_cancel: false
    };
    const free = [
      { start: hour(0, 0), end: hour(1, 14), bookable: 2, quota: { vision: 1 } },
      { start: hour(1, 14), end: hour(1, 16), bookable: 0, quota: { vision: 1 } },
      { start: hour(1, 16), end: hour(7, 0), bookable: 2, quota: { vision: 1 } }
    ];
    const calendar = {
      pool: 'default',
      entries: [entry, { ...entry, state: 'given back' as const }],
      free
    };
    const now = new Date(2027, 0, 4, 10, 30);
    const week = weekOf(monday, calendar, 'vision', now);
    expect(week[0][9].free).toBeNull();
    expect(week[0][10].free).toBe(2);
    expect([13, 14, 15, 16].map(at => week[1][at].free)).toEqual([2, 1, 1, 2]);
    expect([13, 14, 15, 16].map(at => week[1][at].entries.length)).toEqual([0, 1, 1, 0]);
    expect(weekOf(monday, calendar, 'other', now)[1][14].free).toBe(0);
  });

  it('chooses hours of one day', () => {
    expect(spanTo(null, 2, 10)).toEqual({ day: 2, first: 10, last: 10 });
    expect(spanTo({ day: 2, first: 10, last: 10 }, 2, 8)).toEqual({ day: 2, first: 8, last: 10 });
    expect(spanTo({ day: 2, first: 10, last: 10 }, 3, 8)).toEqual({ day: 3, first: 8, last: 8 });
  });

  it('asks in wall time, weekly until a day', () => {
    expect(wallTime(new Date(2027, 0, 5, 9, 5))).toBe('2027-01-05 09:05');
    const place = { start: '2027-01-05 14:00', project: 'course', pool: 'default' };
    const entered = { name: 'Lab', gpu: '0.5', hours: '2', until: '2027-02-02' };
    expect(requestOf(place, entered, true)).toMatchObject({
      gpu: 0.5,
      hours: 2,
      start: '2027-01-05 14:00',
      repeat: { frequency: 'weekly', until: '2027-02-02' },
      dry_run: true
    });
    expect(requestOf(place, { ...entered, until: '' }, false).repeat).toBeNull();
  });
});
