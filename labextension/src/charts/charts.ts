/** The charts: which series each shows, and how. Pure. */
import { TranslationBundle } from '@jupyterlab/translation';

import { gpuName, kernelName, memoryText, percentText } from '../format';
import { Kernel } from '../schema';
import { ILine } from '../dashboard/plot';
import { IMeasured, Metric, Track } from './measurements';

export const CHARTS = [
  'gpu-utilization',
  'gpu-memory',
  'gpu-temperature',
  'gpu-power',
  'host-cpu',
  'host-memory',
  'notebook-utilization',
  'notebook-memory'
] as const;
export type ChartName = (typeof CHARTS)[number];

interface IChart {
  readonly of: 'gpu' | 'host' | 'notebook';
  readonly metrics: readonly Metric[];
  readonly format: (value: number) => string;
  /** Upper end of the axis at least. */
  readonly top: number;
  /** Steps of the axis; missing: decimal ones. */
  readonly steps?: readonly number[];
}

const share = { format: percentText, top: 1 };
/** Binary steps, in MiB: 256 MiB to 500 TiB. */
const MEMORY_STEPS = [
  256,
  512,
  ...[1, 10, 100, 1000, 10_000, 100_000].flatMap(ten => [1, 2, 5].map(one => one * ten * 1024))
];
const memory = { format: memoryText, top: 1024, steps: MEMORY_STEPS };

export const CHART: { readonly [name in ChartName]: IChart } = {
  'gpu-utilization': { of: 'gpu', metrics: ['utilization'], ...share },
  'gpu-memory': { of: 'gpu', metrics: ['memory'], ...memory },
  'gpu-temperature': { of: 'gpu', metrics: ['temperature'], format: one => `${one} °C`, top: 50 },
  'gpu-power': { of: 'gpu', metrics: ['power'], format: one => `${one} W`, top: 100 },
  'host-cpu': { of: 'host', metrics: ['cpu'], ...share },
  'host-memory': { of: 'host', metrics: ['host_memory', 'saved'], ...memory },
  'notebook-utilization': { of: 'notebook', metrics: ['utilization'], ...share },
  'notebook-memory': { of: 'notebook', metrics: ['memory'], ...memory }
};

export function chartTitle(name: ChartName, trans: TranslationBundle): string {
  switch (name) {
    case 'gpu-utilization':
      return trans.__('GPU utilization');
    case 'gpu-memory':
      return trans.__('GPU memory in use');
    case 'gpu-temperature':
      return trans.__('GPU temperature');
    case 'gpu-power':
      return trans.__('GPU power');
    case 'host-cpu':
      return trans.__('CPU of the nodes');
    case 'host-memory':
      return trans.__('Host memory, and GPU memory saved in it');
    case 'notebook-utilization':
      return trans.__('GPU utilization of my notebooks');
    case 'notebook-memory':
      return trans.__('GPU memory of my notebooks');
  }
}

/** Lines with common times (seconds); null: nothing was measured. */
export interface IChartData {
  readonly times: readonly number[];
  readonly lines: readonly ILine[];
}

/** The lines of a chart of GPUs or machines. */
export function nodeLines(name: ChartName, track: Track, trans: TranslationBundle): IChartData {
  const { of, metrics } = CHART[name];
  const found = [...track.series.values()].filter(
    one => metrics.includes(one.metric) && (one.gpu === '') === (of === 'host')
  );
  const hasNodes = new Set(found.map(one => one.node)).size > 1;
  const lines = found.flatMap((one, index) =>
    lineOf(one, nodeLabel(one, hasNodes, trans), index, found.length)
  );
  return { times: track.times.values(), lines };
}

function nodeLabel(one: IMeasured, hasNodes: boolean, trans: TranslationBundle): string {
  if (one.gpu !== '') {
    const name = trans.__('GPU %1', gpuName(one.gpu));
    return hasNodes ? `${one.node} ${name}` : name;
  }
  switch (one.metric) {
    case 'saved':
      return one.total === null
        ? trans.__('%1: saved', one.node)
        : trans.__(
            '%1: saved, %2 left',
            one.node,
            memoryText(Math.max(0, one.total - (one.ring.newest || 0)))
          );
    case 'host_memory':
      return trans.__('%1: in use', one.node);
    default:
      return one.node;
  }
}

/** The lines of a chart of notebooks: each has its own times, so all are put on one time axis. */
export function notebookLines(
  name: ChartName,
  tracks: ReadonlyMap<string, Track>,
  kernels: readonly Kernel[],
  only: string | null = null
): IChartData {
  const shown = kernels.filter(
    kernel => tracks.has(kernel.kernel_id) && (only === null || kernel.kernel_id === only)
  );
  const [metric] = CHART[name].metrics;
  const all = shown.flatMap(kernel => tracks.get(kernel.kernel_id)!.times.values());
  const times = [...new Set(all)].sort((a, b) => a - b);
  const lines = shown.flatMap((kernel, index) => {
    const track = tracks.get(kernel.kernel_id)!;
    const one = [...track.series.values()].find(series => series.metric === metric);
    const values = one === undefined ? [] : spread(times, track.times.values(), one.ring);
    const line = { key: kernel.kernel_id, label: kernelName(kernel), width: 2, values };
    return values.some(value => value !== null)
      ? [{ ...line, color: colorOf(index, shown.length) }]
      : [];
  });
  return { times, lines };
}

/** The values at all times; between two of its own samples a series keeps the earlier one. */
function spread(times: readonly number[], own: readonly number[], ring: IMeasured['ring']) {
  const values = ring.valuesOrNull();
  const offset = own.length - values.length;
  let next = 0;
  return times.map(time => {
    while (next < own.length && own[next] <= time) {
      next += 1;
    }
    return next === 0 || next > own.length ? null : (values[next - 1 - offset] ?? null);
  });
}

function lineOf(one: IMeasured, label: string, index: number, count: number): ILine[] {
  const values = one.ring.valuesOrNull();
  if (!values.some(value => value !== null)) {
    return []; // nothing was measured
  }
  return [
    {
      key: `${one.node} ${one.gpu} ${one.metric}`,
      label,
      color: colorOf(index, count),
      width: count > 16 ? 1 : 2,
      dash: one.metric === 'saved' ? [6, 4] : undefined,
      values
    }
  ];
}

const FEW = ['--jp-brand-color1', '--jp-success-color1', '--jp-warn-color1', '--jp-error-color1'];

/** The theme's colors for a few lines, else hues. */
function colorOf(index: number, count: number): string {
  return count <= FEW.length ? FEW[index] : `hsl(${Math.round((360 * index) / count)} 70% 45%)`;
}

/** The text alternative: the present, as average and highest. */
export function chartText(name: ChartName, data: IChartData, trans: TranslationBundle): string {
  const { format } = CHART[name];
  const now = data.lines.flatMap(line => {
    const value = line.values[line.values.length - 1];
    return value === null || value === undefined ? [] : [{ label: line.label, value }];
  });
  if (now.length === 0) {
    return trans.__('No data yet.');
  }
  if (now.length <= 4) {
    return now.map(one => `${one.label}: ${format(one.value)}`).join(' · ');
  }
  const highest = now.reduce((a, b) => (b.value > a.value ? b : a));
  const average = now.reduce((sum, one) => sum + one.value, 0) / now.length;
  return trans.__(
    '%1 lines: average %2, highest %3 (%4)',
    now.length,
    format(Number(average.toFixed(2))),
    format(highest.value),
    highest.label
  );
}
