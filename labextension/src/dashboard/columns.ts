/**
 * The columns of every table. Ids are the server's names, so that a CSV has the same columns.
 * Pure.
 */
import { TranslationBundle } from '@jupyterlab/translation';

import { aboutText } from '../expectedWait';
import { StateLabel, stateText, workloadLabel } from '../stateLabels';
import {
  EvictionRow,
  NodeRow,
  nodeTable,
  PoolRow,
  poolTable,
  ProjectRow,
  projectTable,
  QueueRow,
  queueTable,
  TableColumn,
  WorkloadView
} from '../schema';

/** Marks of states: green, yellow, red. */
export type Tone = 'good' | 'fair' | 'bad';

export type Cell = string | number | boolean | null | readonly string[];

/** `id` is the server's name of the column; a dot selects a field of a field. */
export interface IColumn<Row> {
  readonly id: string;
  readonly label: string;
  readonly value: (row: Row) => Cell;
  /** Text for null, for example `unlimited` for a quota. */
  readonly none?: string;
  /** Hidden until a person selects it. */
  readonly hidden?: boolean;
  /** Alignment and format. A duration is in seconds. */
  readonly kind?: 'number' | 'duration' | 'time' | 'text';
  /** Color of the mark beside the text; without it there is none. */
  readonly tone?: (row: Row) => Tone;
}

type Trans = TranslationBundle;

/** A column whose value is the field of the same name. */
function plain<Row>(
  id: keyof Row & string,
  label: string,
  more: Partial<IColumn<Row>> = {}
): IColumn<Row> {
  // ?? null: an older server may not send the field
  return { id, label, value: row => (row[id] ?? null) as unknown as Cell, ...more };
}

function amount<Row>(
  id: keyof Row & string,
  label: string,
  more: Partial<IColumn<Row>> = {}
): IColumn<Row> {
  return plain(id, label, { kind: 'number', ...more });
}

const WORKING: readonly StateLabel[] = ['running', 'idle'];

function statusTone({ status }: { status: string }): Tone {
  return status === 'Ready' ? 'good' : status === 'Not ready' ? 'bad' : 'fair';
}

export const workloadColumns = (trans: Trans): IColumn<WorkloadView>[] => [
  plain('name', trans.__('Name')),
  {
    id: 'state',
    label: trans.__('State'),
    value: w => stateText(workloadLabel(w), trans),
    tone: w => (WORKING.includes(workloadLabel(w)) ? 'good' : 'fair')
  },
  plain('project', trans.__('Project')),
  plain('user', trans.__('User')),
  { id: 'request.gpu', label: trans.__('GPUs'), value: w => w.request.gpu, kind: 'number' },
  {
    id: 'request.gpu_memory_mib',
    label: trans.__('GPU memory (MiB)'),
    value: w => w.request.gpu_memory_mib,
    kind: 'number',
    hidden: true
  },
  {
    id: 'pods.lease.node',
    label: trans.__('Node'),
    value: w => w.pods.flatMap(pod => pod.lease?.node ?? [])
  },
  amount('queue_position', trans.__('Position')),
  {
    id: 'expected_wait.seconds_median',
    label: trans.__('Expected wait'),
    value: w => w.expected_wait?.seconds_median ?? null,
    kind: 'duration'
  },
  {
    id: 'reason.code',
    label: trans.__('Reason code'),
    value: w => w.reason?.code ?? null,
    hidden: true
  },
  { id: 'reason.message', label: trans.__('Reason'), value: w => w.reason?.message ?? null },
  plain('node_pools', trans.__('Node pools'), { hidden: true }),
  amount('priority', trans.__('Priority'), { hidden: true }),
  plain('preemptible', trans.__('Preemptible'), { hidden: true }),
  plain('created', trans.__('Requested at'), { kind: 'time', hidden: true }),
  plain('kernel_id', trans.__('Kernel'), { hidden: true }),
  plain('id', trans.__('ID'), { hidden: true })
];

export const evictionColumns = (trans: Trans): IColumn<EvictionRow>[] => [
  plain('time', trans.__('Time'), { kind: 'time' }),
  plain('name', trans.__('Name')),
  plain('project', trans.__('Project')),
  plain('user', trans.__('User')),
  plain('action', trans.__('Action')),
  plain('by_project', trans.__('For project')),
  plain('message', trans.__('Reason')),
  plain('node', trans.__('Node')),
  plain('pool', trans.__('Node pool'), { hidden: true }),
  plain('by', trans.__('For workload'), { hidden: true }),
  plain('workload', trans.__('Workload'), { hidden: true }),
  plain('pod', trans.__('Pod'), { hidden: true })
];

/** Columns of a table that is described on the server side (jupyter_gpushare/messages/tables.py). */
function generated<Row>(
  columns: readonly TableColumn[],
  tones: { readonly [id: string]: (row: Row) => Tone } = {}
): IColumn<Row>[] {
  return columns.map(({ id, label, kind, none, hidden }) =>
    plain<Row>(id as keyof Row & string, label, { kind, none, hidden, tone: tones[id] })
  );
}

export const nodeColumns = (trans: Trans): IColumn<NodeRow>[] =>
  generated(nodeTable(trans), { status: statusTone });

export const poolColumns = (trans: Trans): IColumn<PoolRow>[] =>
  generated(poolTable(trans), { status: statusTone });

export const projectColumns = (trans: Trans): IColumn<ProjectRow>[] =>
  generated(projectTable(trans));

export const queueColumns = (trans: Trans): IColumn<QueueRow>[] => generated(queueTable(trans));

/** Ids of the columns without a value in any row: narrow windows have no room for them. */
export function emptyColumns<Item>(
  rows: readonly Item[],
  columns: readonly IColumn<Item>[]
): string[] {
  const isEmpty = (cell: Cell) =>
    cell === null || cell === '' || (typeof cell === 'object' && cell.length === 0);
  return columns
    .filter(({ value, none }) => !none && rows.every(row => isEmpty(value(row))))
    .map(({ id }) => id);
}

/** A cell as text. */
export function cellText(
  value: Cell,
  column: Pick<IColumn<never>, 'none' | 'kind'>,
  trans: Trans
): string {
  if (value === null || value === '') {
    return value === null ? (column.none ?? '') : '';
  }
  if (typeof value === 'boolean') {
    return value ? trans.__('yes') : trans.__('no');
  }
  if (typeof value === 'number') {
    if (column.kind === 'duration') {
      return aboutText(value, trans);
    }
    return String(Number(value.toFixed(3)));
  }
  if (typeof value !== 'string') {
    return value.join(', ');
  }
  return column.kind === 'time' ? whenText(value) : value;
}

/** The time of day; with the date unless it is today. */
function whenText(time: string): string {
  const when = new Date(time);
  return when.toDateString() === new Date().toDateString()
    ? when.toLocaleTimeString(undefined, { hourCycle: 'h23' })
    : when.toLocaleString(undefined, { hourCycle: 'h23' });
}

/** Sort order of two cells: numbers by size, names in natural order, null last. */
export function compareCells(a: Cell, b: Cell): number {
  const [one, other] = [a, b].map(cell =>
    typeof cell === 'object' && cell !== null ? cell.join(', ') : cell
  );
  if (one === null || other === null) {
    return one === other ? 0 : one === null ? 1 : -1;
  }
  return typeof one === 'string' && typeof other === 'string'
    ? one.localeCompare(other, undefined, { numeric: true })
    : Number(one) - Number(other);
}
