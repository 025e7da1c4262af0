/** Bookings: a calendar of the week with what is free, a form, and the list with cancelling. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import {
  BookingCalendar,
  BookingFit,
  BookingRequest,
  BookingRow,
  PoolRow,
  ProjectRow
} from '../schema';
import { BookingForm } from './bookingForm';
import { addDays, HOURS, ICell, ISpan, mondayOf, spanTo, wallTime, weekOf } from './week';

/** What the view asks the scheduler. Rejects with the reason. */
export interface IBookingsApi {
  calendar(pool: string, from: Date, to: Date): Promise<BookingCalendar>;
  book(request: BookingRequest): Promise<BookingFit>;
  cancel(booking: string): Promise<void>;
}

export interface IBookingsProps {
  bookings: readonly BookingRow[];
  pools: readonly PoolRow[];
  projects: readonly ProjectRow[];
  api: IBookingsApi;
  trans: TranslationBundle;
}

export function Bookings(props: IBookingsProps): JSX.Element {
  const { bookings, pools, projects, api, trans } = props;
  const [monday, setMonday] = React.useState(() => mondayOf(new Date()));
  const [pool, setPool] = React.useState('default');
  const names = [...new Set(projects.map(row => row.name))];
  const [chosen, setChosen] = React.useState('');
  const project = names.includes(chosen) ? chosen : (names[0] ?? '');
  const [span, setSpan] = React.useState<ISpan | null>(null);
  const [calendar, setCalendar] = React.useState<BookingCalendar | null>(null);
  const [problem, setProblem] = React.useState('');
  const load = React.useCallback(
    () =>
      api.calendar(pool, monday, addDays(monday, 7)).then(
        found => {
          setCalendar(found);
          setProblem('');
        },
        error => setProblem(textOf(error))
      ),
    [api, pool, monday]
  );
  // Also when the polled list of bookings has changed.
  React.useEffect(() => void load(), [load, bookings]);
  const cancel = (id: string): void => {
    api.cancel(id).then(load, error => setProblem(textOf(error)));
  };
  const week =
    calendar === null ? null : weekOf(monday, calendar, project, new Date());
  const turn = (days: number): void => {
    setMonday(addDays(monday, days));
    setSpan(null);
  };
  return (
    <>
      <div className="jp-GpuShareDashboard-tools">
        <button className="jp-GpuShare-button" onClick={() => turn(-7)}>
          {trans.__('Previous week')}
        </button>
        <button className="jp-GpuShare-button" onClick={() => turn(7)}>
          {trans.__('Next week')}
        </button>
        <span>{trans.__('Week of %1', wallTime(monday).slice(0, 10))}</span>
        {pools.length > 1 && (
          <select
            value={pool}
            aria-label={trans.__('Node pool')}
            onChange={event => setPool(event.target.value)}
          >
            {pools.map(row => (
              <option key={row.name}>{row.name}</option>
            ))}
          </select>
        )}
        <select
          value={project}
          aria-label={trans.__('Project')}
          onChange={event => setChosen(event.target.value)}
        >
          {names.map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <span className="jp-GpuShare-faint">
          {trans.__('Numbers: GPUs that can be booked. Choose hours, then book.')}
        </span>
      </div>
      {problem !== '' && (
        <p className="jp-GpuShare-warning" role="alert">
          {problem}
        </p>
      )}
      {week !== null && <Week week={week} span={span} onSpan={setSpan} trans={trans} />}
      {week !== null && span !== null && (
        <BookingForm
          key={`${monday.getTime()} ${span.day} ${span.first} ${span.last}`}
          start={wallTime(week[span.day][span.first].start)}
          hours={span.last - span.first + 1}
          project={project}
          pool={pool}
          api={api}
          onBooked={() => {
            setSpan(null);
            void load();
          }}
          onClose={() => setSpan(null)}
          trans={trans}
        />
      )}
      <BookingList bookings={bookings} onCancel={cancel} trans={trans} />
    </>
  );
}

interface IWeekProps {
  week: readonly (readonly ICell[])[];
  span: ISpan | null;
  onSpan: (span: ISpan) => void;
  trans: TranslationBundle;
}

/** Hours as buttons: drag over some, or choose one and extend it with Shift. */
function Week({ week, span, onSpan, trans }: IWeekProps): JSX.Element {
  const [from, setFrom] = React.useState<ISpan | null>(null);
  const [focus, setFocus] = React.useState<readonly [number, number]>([0, 8]);
  const body = React.useRef<HTMLTableSectionElement>(null);
  React.useEffect(() => {
    const stop = (): void => setFrom(null);
    window.addEventListener('pointerup', stop);
    return () => window.removeEventListener('pointerup', stop);
  }, []);
  const move = (event: React.KeyboardEvent, day: number, hour: number): void => {
    const step = STEPS[event.key];
    if (step === undefined) {
      return;
    }
    event.preventDefault();
    const next = [clamp(day + step[0], 6), clamp(hour + step[1], HOURS - 1)] as const;
    setFocus(next);
    body.current?.querySelector<HTMLElement>(`[data-cell="${next[0]}-${next[1]}"]`)?.focus();
    if (event.shiftKey && next[0] === day && span?.day === day) {
      onSpan(extended(span, next[1]));
    }
  };
  return (
    <div
      className="jp-GpuShareDashboard-scroll jp-GpuShareDashboard-week"
      role="region"
      tabIndex={0}
      aria-label={trans.__('Calendar')}
    >
      <table aria-label={trans.__('Calendar of the week')}>
        <thead>
          <tr>
            <th scope="col">{trans.__('Hour')}</th>
            {week.map(day => (
              <th key={day[0].start.getTime()} scope="col">
                {dayText(day[0].start)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          {Array.from({ length: HOURS }, (_, hour) => (
            <tr key={hour}>
              <th scope="row">{`${String(hour).padStart(2, '0')}:00`}</th>
              {week.map((cells, day) => (
                <td key={day} data-booked={cells[hour].entries.length > 0}>
                  <HourButton
                    cell={cells[hour]}
                    place={`${day}-${hour}`}
                    isChosen={
                      span?.day === day && span.first <= hour && hour <= span.last
                    }
                    isNext={focus[0] === day && focus[1] === hour}
                    onDown={() => {
                      const only = spanTo(null, day, hour);
                      setFrom(only);
                      setFocus([day, hour]);
                      onSpan(only);
                    }}
                    onOver={() => from !== null && onSpan(spanTo(from, from.day, hour))}
                    onKey={event => move(event, day, hour)}
                    trans={trans}
                  />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const STEPS: { readonly [key: string]: readonly [number, number] } = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1]
};

function clamp(number: number, most: number): number {
  return Math.max(0, Math.min(most, number));
}

function extended(span: ISpan, hour: number): ISpan {
  return hour < span.first
    ? { ...span, first: hour }
    : { ...span, last: Math.max(span.first, hour) };
}

interface IHourProps {
  cell: ICell;
  place: string;
  isChosen: boolean;
  isNext: boolean;
  onDown: () => void;
  onOver: () => void;
  onKey: (event: React.KeyboardEvent) => void;
  trans: TranslationBundle;
}

function HourButton({ cell, place, isChosen, isNext, trans, ...on }: IHourProps): JSX.Element {
  const booked = cell.entries.map(entry => `${entry.name || entry.project} ${entry.gpu}`);
  const free =
    cell.free === null ? trans.__('over') : trans.__('%1 GPUs free', cell.free);
  const words = [wallTime(cell.start), free, ...booked.map(one => trans.__('booked: %1', one))];
  return (
    <button
      data-cell={place}
      data-over={cell.free === null}
      aria-pressed={isChosen}
      aria-label={words.join(', ')}
      title={words.join(', ')}
      tabIndex={isNext ? 0 : -1}
      onPointerDown={on.onDown}
      onPointerEnter={on.onOver}
      onClick={event => event.detail === 0 && on.onDown()}
      onKeyDown={on.onKey}
    >
      <span>{cell.free === null ? '' : cell.free}</span>
      <span className="jp-GpuShareDashboard-booked" data-text={booked.join(', ')} />
    </button>
  );
}

function dayText(day: Date): string {
  return day.toLocaleDateString(undefined, { weekday: 'short', month: 'short', day: 'numeric' });
}

function BookingList({
  bookings,
  onCancel,
  trans
}: {
  bookings: readonly BookingRow[];
  onCancel: (id: string) => void;
  trans: TranslationBundle;
}): JSX.Element {
  if (bookings.length === 0) {
    return <p className="jp-GpuShare-faint">{trans.__('No bookings.')}</p>;
  }
  return (
    <div
      className="jp-GpuShareDashboard-scroll"
      role="region"
      tabIndex={0}
      aria-label={trans.__('Bookings')}
    >
      <table aria-label={trans.__('Bookings')}>
        <thead>
          <tr>
            <th scope="col">{trans.__('Name')}</th>
            <th scope="col">{trans.__('Project')}</th>
            <th scope="col" data-kind="number">
              {trans.__('GPUs')}
            </th>
            <th scope="col">{trans.__('Start')}</th>
            <th scope="col">{trans.__('For')}</th>
            <th scope="col">{trans.__('State')}</th>
            <th scope="col">{trans.__('Actions')}</th>
          </tr>
        </thead>
        <tbody>
          {bookings.map(row => (
            <tr key={row.id}>
              <th scope="row">{row.name}</th>
              <td>{row.project}</td>
              <td data-kind="number">{row.gpu}</td>
              <td>
                {[`${row.start} ${row.time_zone}`, trans.__('%1 h', row.hours), row.repeats]
                  .filter(part => part !== '')
                  .join(', ')}
              </td>
              <td>{row.who === 'project' ? trans.__('all members') : trans.__('one person')}</td>
              <td title={row.problem}>{row.problem || row.state}</td>
              <td>
                {row.may_cancel && (
                  <button
                    className="jp-GpuShare-link"
                    aria-label={trans.__('Cancel %1', row.name)}
                    onClick={() => onCancel(row.id)}
                  >
                    {trans.__('Cancel')}
                  </button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
