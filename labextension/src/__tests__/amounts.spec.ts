/** Amounts are checked in the page with the server's rules, while a person types. */
import { amountError, readings } from '../amounts';
import { english } from './fixtures';

const gpu = (amount: string, limit = '') => amountError({ unit: 'gpu', amount, limit }, english);
const memory = (amount: string, limit = '') =>
  amountError({ unit: 'gpu_memory', amount, limit }, english);

test.each(['0.5', ' 1 ', '2', '.25', '1e-1', '0.001'])('%j GPUs are valid', amount => {
  expect(gpu(amount)).toBeNull();
});

test.each([
  ['half', 'Enter a number of GPUs, such as 0.5 or 2.'],
  ['20GiB', 'Enter a number of GPUs, such as 0.5 or 2.'],
  ['0', 'Enter more than 0.'],
  ['-1', 'Enter more than 0.'],
  ['0.0001', 'The smallest share is 0.001 GPU.'],
  ['1.5', 'Above 1 GPU only whole numbers are possible: 1 or 2.'],
  ['2000000', 'Too many GPUs.']
])('%j GPUs: %s', (amount, message) => {
  expect(gpu(amount)).toEqual({ field: 'gpu', message });
});

test.each(['20GiB', '512 MiB', '1.5Gi', '20GB', '20TiB'])('%j is a valid size', amount => {
  expect(memory(amount)).toBeNull();
});

test.each([
  ['20', 'A size needs a unit: 20GiB or 20MiB.'],
  ['20gb', 'Unknown unit "gb". Use GiB or MiB.'],
  ['much', 'Enter a size with a unit, such as 20GiB or 512MiB.'],
  ['0GiB', 'Enter more than 0.']
])('the size %j: %s', (amount, message) => {
  expect(memory(amount)).toEqual({ field: 'gpu_memory', message });
});

test('a size without a unit has two likely readings', () => {
  expect(readings('20')).toEqual(['20GiB', '20MiB']);
  expect(readings(' 1.5 ')).toEqual(['1.5GiB', '1.5MiB']);
  expect(readings('20GiB')).toEqual([]);
  expect(readings('half')).toEqual([]);
});

test.each([
  [gpu('0.5', '1'), null],
  [gpu('2', '2'), null],
  [memory('20GiB', '0.5'), null],
  [gpu('0.5', '0.25'), 'The limit is below the share of 0.5 GPU.'],
  [gpu('0.5', '2'), 'The limit of a share is at most 1 GPU.'],
  [gpu('2', '3'), 'The limit of 2 GPUs is 2.'],
  [memory('20GiB', '2'), 'The limit of a share is at most 1 GPU.'],
  [gpu('0.5', 'much'), 'Enter a number of GPUs, such as 0.5 or 2.']
])('a limit %#', (error, message) => {
  expect(error).toEqual(message === null ? null : { field: 'gpu_limit', message });
});
