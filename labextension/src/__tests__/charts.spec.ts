/** Ring buffers of the charts, and the lines that they draw. */
import { CHARTS, chartText, nodeLines } from '../charts/charts';
import { addNodes, CAPACITY, Track } from '../charts/measurements';
import { Ring } from '../charts/ring';
import { MeasuredSeries } from '../schema';
import { english } from './fixtures';

const series = (changes: Partial<MeasuredSeries> = {}): MeasuredSeries => ({
  node: 'n0',
  gpu: 'SIM-GPU-n0-0',
  metric: 'utilization',
  total: null,
  values: [],
  ...changes
});
const at = (second: number) => new Date(1000 * second).toISOString();

test('a ring keeps the newest values, the oldest first', () => {
  const ring = new Ring(3);
  expect(ring.values()).toEqual([]);
  [1, 2, null, 4].forEach(value => ring.push(value));
  expect(ring.valuesOrNull()).toEqual([2, null, 4]);
  expect([ring.length, ring.newest]).toEqual([3, 4]);
});

test('memory is constant, and a later series has gaps before it', () => {
  const track = new Track();
  for (let i = 0; i < CAPACITY + 5; i++) {
    addNodes(track, { times: [at(i)], series: [series({ values: [i] })], left_out: 0 });
  }
  const later = series({ gpu: 'SIM-GPU-n0-1', values: [7] });
  addNodes(track, { times: [at(9999)], series: [series({ values: [1] }), later], left_out: 0 });
  const [first, second] = [...track.series.values()];
  expect([track.times.length, first.ring.length, second.ring.length]).toEqual([
    CAPACITY,
    CAPACITY,
    CAPACITY
  ]);
  expect(second.ring.valuesOrNull().slice(-2)).toEqual([null, 7]);
  addNodes(track, { times: [at(10_000)], series: [later], left_out: 0 });
  expect(track.series.size).toBe(1);
});

test('what is not measured has no line; the text has the present values', () => {
  const track = new Track();
  const nothing = series({ metric: 'power', values: [null] });
  addNodes(track, { times: [at(1)], series: [series({ values: [0.42] }), nothing], left_out: 0 });
  const lines = Object.fromEntries(
    CHARTS.map(name => [name, nodeLines(name, track, english).lines.length])
  );
  expect(lines).toMatchObject({ 'gpu-utilization': 1, 'gpu-power': 0, 'host-cpu': 0 });
  const data = nodeLines('gpu-utilization', track, english);
  expect(chartText('gpu-utilization', data, english)).toBe('GPU 0: 42 %');
});
