/** What is measured of GPUs, machines and my notebooks: one ring buffer per series. */
import { Kernel, KernelHistory, MeasuredSeries, NodeHistory } from '../schema';
import { Ring } from './ring';

/** One hour of samples, as on the server (scheduler/state/node_history.py). */
export const CAPACITY = 720;

export type Metric = MeasuredSeries['metric'];

/** One line over time. `gpu` is "" for a machine and for a notebook, `kernel` for the others. */
export interface IMeasured {
  readonly node: string;
  readonly gpu: string;
  readonly kernel: string;
  readonly metric: Metric;
  readonly total: number | null;
  readonly ring: Ring;
}

/** Series with common times. */
export class Track {
  readonly times = new Ring(CAPACITY);
  readonly series = new Map<string, IMeasured>();

  /** Samples of all series, the oldest first; a series that is missing here is dropped. */
  add(seconds: readonly number[], samples: readonly ISamples[]): void {
    if (seconds.length === 0) {
      return;
    }
    const before = this.times.length;
    seconds.forEach(time => this.times.push(time));
    const keys = new Set(samples.map(keyOf));
    [...this.series.keys()].filter(key => !keys.has(key)).forEach(key => this.series.delete(key));
    for (const { values, ...rest } of samples) {
      const ring = this.series.get(keyOf(rest))?.ring ?? emptyRing(before);
      values.forEach(value => ring.push(value));
      this.series.set(keyOf(rest), { ...rest, ring });
    }
  }
}

interface ISamples extends Omit<IMeasured, 'ring'> {
  readonly values: readonly (number | null)[];
}

function keyOf({ node, gpu, kernel, metric }: Omit<IMeasured, 'ring' | 'total'>): string {
  return `${node}\n${gpu}\n${kernel}\n${metric}`;
}

function emptyRing(length: number): Ring {
  const ring = new Ring(CAPACITY);
  for (let i = 0; i < length; i++) {
    ring.push(null);
  }
  return ring;
}

/** Add an answer of `GET history/nodes` to what is known. */
export function addNodes(track: Track, answer: NodeHistory): void {
  track.add(
    answer.times.map(time => Date.parse(time) / 1000),
    answer.series.map(one => ({ ...one, kernel: '' }))
  );
}

/** The past of a kernel, from the server. */
export function addPast(track: Track, kernel: Kernel, { samples }: KernelHistory): void {
  track.add(
    samples.map(sample => Date.parse(sample.time) / 1000),
    [
      ofKernel(
        kernel,
        'utilization',
        samples.map(sample => sample.utilization)
      ),
      ofKernel(
        kernel,
        'memory',
        samples.map(sample => sample.used_mib)
      )
    ]
  );
}

/** The present of a kernel, from the stream. */
export function addPresent(track: Track, kernel: Kernel, seconds: number): void {
  track.add(
    [seconds],
    [
      ofKernel(kernel, 'utilization', [kernel.utilization]),
      ofKernel(kernel, 'memory', [kernel.memory_mib.used])
    ]
  );
}

function ofKernel(kernel: Kernel, metric: Metric, values: readonly (number | null)[]): ISamples {
  return { node: '', gpu: '', kernel: kernel.kernel_id, metric, total: null, values };
}
