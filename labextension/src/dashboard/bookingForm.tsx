/** The form of a booking: what the calendar chose, the amount, and whether it repeats. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { BookingRequest } from '../schema';
import { IBookingsApi } from './bookings';

export interface IBookingFormProps {
  start: string;
  hours: number;
  project: string;
  pool: string;
  api: Pick<IBookingsApi, 'book'>;
  onBooked: () => void;
  onClose: () => void;
  trans: TranslationBundle;
}

export function BookingForm(props: IBookingFormProps): JSX.Element {
  const { api, onBooked, onClose, trans } = props;
  const [name, setName] = React.useState('');
  const [gpu, setGpu] = React.useState('1');
  const [hours, setHours] = React.useState(String(props.hours));
  const [until, setUntil] = React.useState('');
  const [answer, setAnswer] = React.useState('');
  const ask = (dryRun: boolean): void => {
    const request = requestOf(props, { name, gpu, hours, until }, dryRun);
    api.book(request).then(
      fit => (fit.booking === null ? setAnswer(fit.message) : onBooked()),
      error => setAnswer(error instanceof Error ? error.message : String(error))
    );
  };
  return (
    <form
      className="jp-GpuShareDashboard-booking"
      aria-label={trans.__('New booking')}
      onSubmit={event => {
        event.preventDefault();
        ask(false);
      }}
      onKeyDown={event => event.key === 'Escape' && onClose()}
    >
      <b>{trans.__('From %1 for project %2', props.start, props.project)}</b>
      <Field label={trans.__('Hours')}>
        <input
          type="number"
          min={0.25}
          step="any"
          required
          value={hours}
          onChange={event => setHours(event.target.value)}
        />
      </Field>
      <Field label={trans.__('GPUs')}>
        <input
          type="number"
          min={0.01}
          step="any"
          required
          value={gpu}
          onChange={event => setGpu(event.target.value)}
        />
      </Field>
      <Field label={trans.__('Name')}>
        <input value={name} onChange={event => setName(event.target.value)} />
      </Field>
      <Field label={trans.__('Weekly until')}>
        <input type="date" value={until} onChange={event => setUntil(event.target.value)} />
      </Field>
      <button type="button" className="jp-GpuShare-button" onClick={() => ask(true)}>
        {trans.__('Check')}
      </button>
      <button type="submit" className="jp-GpuShare-button">
        {trans.__('Book')}
      </button>
      <button type="button" className="jp-GpuShare-link" onClick={onClose}>
        {trans.__('Close')}
      </button>
      <span role="status">{answer}</span>
    </form>
  );
}

function Field({
  label,
  children
}: {
  label: string;
  children: React.ReactNode;
}): JSX.Element {
  return (
    <label>
      {label} {children}
    </label>
  );
}

interface IEntered {
  readonly name: string;
  readonly gpu: string;
  readonly hours: string;
  readonly until: string;
}

/** The request, in the browser's time zone. */
export function requestOf(
  { start, project, pool }: Pick<IBookingFormProps, 'start' | 'project' | 'pool'>,
  { name, gpu, hours, until }: IEntered,
  dryRun: boolean
): BookingRequest {
  return {
    id: `b-${Math.random().toString(16).slice(2, 10)}`,
    project,
    pool,
    gpu: Number(gpu),
    start,
    hours: Number(hours),
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC',
    name,
    repeat: until === '' ? null : { frequency: 'weekly', days: [], times: null, until },
    who: null,
    source: null,
    no_show_minutes: 10,
    dry_run: dryRun
  };
}
