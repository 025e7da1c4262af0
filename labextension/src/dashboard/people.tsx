/** The people of a project: who runs, waits and is idle; and what its managers decide. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { timeText } from '../format';
import { MemberLimit, PersonNotebook, PersonRow } from '../schema';
import { StateLabel, stateText } from '../stateLabels';

/** What a manager does with a workload. */
export type ManagerAction = 'release' | 'next-turn';

export interface IPeopleProps {
  people: readonly PersonRow[];
  onManage: (workload: string, action: ManagerAction) => Promise<void>;
  onLimit: (limit: MemberLimit) => Promise<void>;
  trans: TranslationBundle;
}

export function People({ people, trans, ...acts }: IPeopleProps): JSX.Element {
  const projects = [...new Set(people.map(person => person.project))];
  const [chosen, setChosen] = React.useState('');
  const [filter, setFilter] = React.useState('');
  const [problem, setProblem] = React.useState('');
  const project = projects.includes(chosen) ? chosen : projects[0];
  const shown = people.filter(
    person => person.project === project && person.user.includes(filter.trim())
  );
  if (project === undefined) {
    return (
      <p className="jp-GpuShare-faint">
        {trans.__('No people: no project that you see has rules between its members.')}
      </p>
    );
  }
  const attempt = (task: Promise<void>): void => {
    setProblem('');
    task.catch(error => setProblem(error instanceof Error ? error.message : String(error)));
  };
  return (
    <>
      <div className="jp-GpuShareDashboard-tools">
        {projects.length > 1 && (
          <select
            value={project}
            aria-label={trans.__('Project')}
            onChange={event => setChosen(event.target.value)}
          >
            {projects.map(name => (
              <option key={name}>{name}</option>
            ))}
          </select>
        )}
        <input
          type="search"
          value={filter}
          placeholder={trans.__('Filter people')}
          aria-label={trans.__('Filter people')}
          onChange={event => setFilter(event.target.value)}
        />
        <Summary people={shown} trans={trans} />
      </div>
      {problem !== '' && (
        <p className="jp-GpuShare-warning" role="alert">
          {problem}
        </p>
      )}
      <div
        className="jp-GpuShareDashboard-scroll"
        role="region"
        tabIndex={0}
        aria-label={trans.__('People')}
      >
        <table aria-label={trans.__('People')}>
          <thead>
            <tr>
              <th scope="col">{trans.__('User')}</th>
              <th scope="col">{trans.__('State')}</th>
              <th scope="col">{trans.__('Since')}</th>
              <th scope="col">{trans.__('Notebooks')}</th>
              <th scope="col" data-kind="number">
                {trans.__('GPUs')}
              </th>
              <th scope="col" data-kind="number">
                {trans.__('Turns today')}
              </th>
              <th scope="col" data-kind="number">
                {trans.__('GPU minutes today')}
              </th>
              <th scope="col">{trans.__('Actions')}</th>
            </tr>
          </thead>
          <tbody>
            {shown.map(person => (
              <Person
                key={person.user}
                person={person}
                onManage={(workload, action) => attempt(acts.onManage(workload, action))}
                onLimit={limit => attempt(acts.onLimit(limit))}
                trans={trans}
              />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function Summary({
  people,
  trans
}: {
  people: readonly PersonRow[];
  trans: TranslationBundle;
}): JSX.Element {
  const count = (...states: StateLabel[]): number =>
    people.filter(person => states.includes(person.state)).length;
  const parts = [
    trans._n('%1 person', '%1 people', people.length),
    trans.__('%1 running', count('running', 'partly running', 'starting')),
    trans.__('%1 waiting', count('waiting')),
    trans.__('%1 idle', count('idle', 'suspended'))
  ];
  return <span className="jp-GpuShare-faint">{parts.join(' · ')}</span>;
}

interface IPersonProps {
  person: PersonRow;
  onManage: (workload: string, action: ManagerAction) => void;
  onLimit: (limit: MemberLimit) => void;
  trans: TranslationBundle;
}

const WORKING: readonly StateLabel[] = ['running', 'partly running', 'idle'];

function PersonView({ person, onManage, onLimit, trans }: IPersonProps): JSX.Element {
  const { user, notebooks } = person;
  const waiting = notebooks.find(one => one.state === 'waiting' && !one.next_turn);
  const limit = person.gpu_limit === null ? '' : ` / ${person.gpu_limit}`;
  return (
    <tr data-user={user}>
      <th scope="row">{user}</th>
      <td data-column="state" data-tone={WORKING.includes(person.state) ? 'good' : 'fair'}>
        {stateText(person.state, trans)}
      </td>
      <td data-kind="time">{sinceText(person.since)}</td>
      <td>
        <ul className="jp-GpuShareDashboard-notebooks">
          {notebooks.map(one => (
            <Notebook key={one.id} notebook={one} trans={trans} />
          ))}
        </ul>
      </td>
      <td data-kind="number">{`${person.gpu}${limit}`}</td>
      <td data-kind="number">{person.turns_today}</td>
      <td data-kind="number">{person.gpu_minutes_today.toFixed(1)}</td>
      <td>
        {person.managed && (
          <div className="jp-GpuShareDashboard-actions">
            {waiting !== undefined && (
              <button
                className="jp-GpuShare-link"
                aria-label={trans.__('Next turn for %1', user)}
                onClick={() => onManage(waiting.id, 'next-turn')}
              >
                {trans.__('Next turn')}
              </button>
            )}
            <Release person={person} onManage={onManage} trans={trans} />
            <Limit person={person} onLimit={onLimit} trans={trans} />
          </div>
        )}
      </td>
    </tr>
  );
}

/** A poll replaces all rows; only people with other values render again. */
const Person = React.memo(
  PersonView,
  (a, b) => JSON.stringify(a.person) === JSON.stringify(b.person) && a.trans === b.trans
);

function Notebook({
  notebook,
  trans
}: {
  notebook: PersonNotebook;
  trans: TranslationBundle;
}): JSX.Element {
  const { name, id, state, position, next_turn } = notebook;
  const place = next_turn
    ? trans.__('next turn')
    : position === null
      ? ''
      : trans.__('position %1', position);
  const text = [stateText(state, trans), place].filter(part => part !== '').join(', ');
  return <li title={name}>{`${name.split('/').pop() || id} (${text})`}</li>;
}

/** Release one notebook's GPU, after a confirmation in place. */
function Release({
  person,
  onManage,
  trans
}: Pick<IPersonProps, 'person' | 'onManage' | 'trans'>): JSX.Element | null {
  const [isAsked, setAsked] = React.useState(false);
  const held = person.notebooks.filter(one => one.gpu > 0);
  if (held.length === 0) {
    return null;
  }
  if (!isAsked) {
    return (
      <button
        className="jp-GpuShare-link"
        aria-label={trans.__('Release a GPU of %1', person.user)}
        onClick={() => setAsked(true)}
      >
        {trans.__('Release')}
      </button>
    );
  }
  return (
    <>
      {held.map(one => (
        <button
          key={one.id}
          className="jp-GpuShare-link"
          onClick={() => {
            setAsked(false);
            onManage(one.id, 'release');
          }}
        >
          {trans.__('Release %1', one.name.split('/').pop() || one.id)}
        </button>
      ))}
      <button className="jp-GpuShare-link" autoFocus onClick={() => setAsked(false)}>
        {trans.__('Keep')}
      </button>
    </>
  );
}

/** The person's GPU limit; empty: as in the policy. */
function Limit({
  person,
  onLimit,
  trans
}: Pick<IPersonProps, 'person' | 'onLimit' | 'trans'>): JSX.Element {
  const [text, setText] = React.useState<string | null>(null);
  if (text === null) {
    return (
      <button
        className="jp-GpuShare-link"
        aria-label={trans.__('Limit %1', person.user)}
        onClick={() => setText(String(person.gpu_limit ?? ''))}
      >
        {trans.__('Limit…')}
      </button>
    );
  }
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    const gpu = text.trim() === '' ? null : Number(text);
    const { project, user } = person;
    onLimit({ project, user, gpu });
    setText(null);
  };
  return (
    <form onSubmit={submit}>
      <input
        type="number"
        min={0}
        step="any"
        value={text}
        autoFocus
        aria-label={trans.__('GPU limit of %1; empty: as in the policy', person.user)}
        onChange={event => setText(event.target.value)}
        onKeyDown={event => event.key === 'Escape' && setText(null)}
      />
      <button className="jp-GpuShare-link" type="submit">
        {trans.__('Set')}
      </button>
    </form>
  );
}

/** The time of day since when. */
function sinceText(since: string | null): string {
  return since === null ? '' : timeText(Date.parse(since));
}
