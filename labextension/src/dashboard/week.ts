/** A week of hours in the browser's time zone, with what is booked and free. Pure. */
import { BookingCalendar, CalendarEntry, FreeTime } from '../schema';

export const HOURS = 24;
export const DAYS = 7;
const HOUR_MS = 3_600_000;

/** Hours of one day: from `first` up to and including `last`. */
export interface ISpan {
  readonly day: number;
  readonly first: number;
  readonly last: number;
}

export interface ICell {
  readonly start: Date;
  /** What is booked in this hour. */
  readonly entries: readonly CalendarEntry[];
  /** GPUs that can be booked during all of it; null: the hour is over. */
  readonly free: number | null;
}

/** Midnight of the Monday of this day's week. */
export function mondayOf(day: Date): Date {
  const weekday = (day.getDay() + 6) % 7;
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - weekday);
}

export function addDays(day: Date, count: number): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + count);
}

/** Of each day, its hours. An hour that the clock skips or repeats is the one that it shows. */
export function weekOf(
  monday: Date,
  calendar: BookingCalendar,
  project: string,
  now: Date
): readonly (readonly ICell[])[] {
  return Array.from({ length: DAYS }, (_, day) =>
    Array.from({ length: HOURS }, (_unused, hour) => {
      const start = new Date(
        monday.getFullYear(),
        monday.getMonth(),
        monday.getDate() + day,
        hour
      );
      const from = start.getTime();
      const to = from + HOUR_MS;
      return {
        start,
        entries: calendar.entries.filter(
          entry => entry.state !== 'given back' && overlaps(entry, from, to)
        ),
        free: to <= now.getTime() ? null : freeIn(calendar.free, project, from, to)
      };
    })
  );
}

function overlaps(time: { start: string; end: string }, from: number, to: number): boolean {
  return Date.parse(time.start) < to && Date.parse(time.end) > from;
}

/** The least that is free at any time: of the bookable part, or of the project's quota. */
function freeIn(free: readonly FreeTime[], project: string, from: number, to: number): number {
  const parts = free.filter(part => overlaps(part, from, to));
  const least = (amount: (part: FreeTime) => number): number =>
    parts.length === 0 ? 0 : Math.min(...parts.map(amount));
  return Math.max(
    least(part => part.bookable),
    least(part => part.quota[project] ?? 0)
  );
}

/** The hours between two cells of a day; of another day only the second one. */
export function spanTo(from: ISpan | null, day: number, hour: number): ISpan {
  return from === null || from.day !== day
    ? { day, first: hour, last: hour }
    : { day, first: Math.min(from.first, hour), last: Math.max(from.first, hour) };
}

/** A wall time as the scheduler reads it. */
export function wallTime(at: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}`;
}
