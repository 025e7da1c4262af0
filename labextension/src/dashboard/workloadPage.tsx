/** One workload: where it runs, why it waits, its usage, its events, and what can be done. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { Chart } from '../charts/chart';
import { ChartSource } from '../charts/source';
import { aboutText } from '../expectedWait';
import { gpuName, memoryText, percentText, shareText, timeText } from '../format';
import { EvictionRow, Kernel, WorkloadView } from '../schema';
import { stateText, workloadLabel } from '../stateLabels';
import { docsOf } from '../views/reason';
import { IRowAction } from './rowActions';
import { RowActions } from './rowButtons';

interface IPageProps {
  workload: WorkloadView;
  /** It is a notebook of this server. */
  kernel: Kernel | null;
  /** Of all workloads. */
  evictions: readonly EvictionRow[];
  actions: readonly IRowAction[];
  charts: ChartSource;
  theme: string;
  onClose: () => void;
  trans: TranslationBundle;
}

export function WorkloadPage(props: IPageProps): JSX.Element {
  const { workload, kernel, onClose, trans } = props;
  const name = workload.name || workload.id;
  const back = React.useRef<HTMLButtonElement>(null);
  React.useEffect(() => back.current?.focus(), [workload.id]);
  return (
    <section
      className="jp-GpuShareDashboard-scroll jp-GpuShareDashboard-page"
      aria-label={trans.__('Workload %1', name)}
    >
      <div className="jp-GpuShareDashboard-tools">
        <button ref={back} className="jp-GpuShare-link" onClick={onClose}>
          {trans.__('← All workloads')}
        </button>
        <h3>{name}</h3>
        <RowActions actions={props.actions} trans={trans} />
      </div>
      <Facts workload={workload} trans={trans} />
      <Why workload={workload} trans={trans} />
      {kernel !== null && <Usage {...props} kernel={kernel} />}
      <h4>{trans.__('Events')}</h4>
      <EventList {...props} />
    </section>
  );
}

function Facts({
  workload,
  trans
}: Pick<IPageProps, 'workload' | 'trans'>): JSX.Element {
  const reports = workload.pods.flatMap(pod => pod.report ?? []);
  const used = reports.reduce((sum, one) => sum + one.memory_mib.used, 0);
  const borrowed = reports.reduce((sum, one) => sum + one.memory_mib.borrowed, 0);
  const busy = reports.flatMap(one => one.utilization ?? []);
  const facts: [string, string][] = [
    [trans.__('State'), stateText(workloadLabel(workload), trans)],
    [trans.__('User'), workload.user],
    [trans.__('Project'), workload.project],
    [trans.__('Share'), shareText(workload.request) ?? ''],
    [
      trans.__('Node'),
      [...new Set(workload.pods.flatMap(pod => pod.lease?.node ?? []))].join(', ')
    ],
    [trans.__('GPU'), reports.flatMap(one => one.gpu_uuids.map(gpuName)).join(', ')],
    [
      trans.__('GPU memory'),
      reports.length === 0
        ? ''
        : borrowed > 0
          ? trans.__('%1, %2 borrowed', memoryText(used), memoryText(borrowed))
          : memoryText(used)
    ],
    [trans.__('GPU utilization'), busy.length === 0 ? '' : percentText(Math.max(...busy))],
    [trans.__('Requested at'), new Date(workload.created).toLocaleString()],
    [trans.__('Command'), workload.command?.join(' ') ?? '']
  ];
  return (
    <dl>
      {facts
        .filter(([, value]) => value !== '')
        .map(([label, value]) => (
          <React.Fragment key={label}>
            <dt>{label}</dt>
            <dd>{value}</dd>
          </React.Fragment>
        ))}
    </dl>
  );
}

function Why({
  workload,
  trans
}: Pick<IPageProps, 'workload' | 'trans'>): JSX.Element | null {
  const { reason, queue_position: position } = workload;
  const wait = workload.expected_wait?.seconds_median ?? null;
  return reason === null ? null : (
    <div className="jp-GpuShare-reason">
      <div>{reason.message}</div>
      {position !== null && (
        <div className="jp-GpuShare-faint">{trans.__('Queue position: %1', position)}</div>
      )}
      {wait !== null && (
        <div className="jp-GpuShare-faint">
          {trans.__('Expected wait: %1', aboutText(wait, trans))}
        </div>
      )}
      <ul className="jp-GpuShare-helps">
        {reason.helps.map(help => (
          <li key={`${help.to} ${help.message}`}>{help.message}</li>
        ))}
      </ul>
      <a className="jp-GpuShare-link" href={docsOf(reason)} target="_blank" rel="noopener">
        {trans.__('About this reason')}
      </a>
    </div>
  );
}

function Usage(props: IPageProps & { kernel: Kernel }): JSX.Element {
  const { kernel, charts, theme, trans } = props;
  const kernels = React.useMemo(() => [kernel], [kernel]);
  const common = { source: charts, kernels, only: kernel.kernel_id, theme, titled: true, trans };
  return (
    <div className="jp-GpuShareDashboard-charts">
      <Chart name="notebook-utilization" {...common} />
      <Chart name="notebook-memory" {...common} />
    </div>
  );
}

interface ILine {
  readonly time: string;
  readonly message: string;
}

/** The newest first: events of my notebook, evictions of anything else. */
function EventList({ workload, kernel, evictions, trans }: IPageProps): JSX.Element {
  const lines: readonly ILine[] =
    kernel?.events ?? evictions.filter(one => one.workload === workload.id);
  if (lines.length === 0) {
    return <p className="jp-GpuShare-faint">{trans.__('No events.')}</p>;
  }
  return (
    <ol reversed>
      {[...lines].reverse().map((line, index) => (
        <li key={`${line.time} ${index}`}>
          <time dateTime={line.time}>{timeText(line.time)}</time>{' '}
          {line.message}
        </li>
      ))}
    </ol>
  );
}
