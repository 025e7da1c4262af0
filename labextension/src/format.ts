/** Amounts, times and states as text. Pure. */
import { Kernel, KernelRequest, Share } from './schema';

/** 512 MiB, 40 GiB, 1.5 GiB: at most one decimal. */
export function memoryText(mib: number): string {
  if (mib < 1024) {
    return `${Math.round(mib)} MiB`;
  }
  return `${Number((mib / 1024).toFixed(1))} GiB`;
}

const FRACTIONS: { readonly [part: number]: string } = { 0.25: '¼', 0.5: '½', 0.75: '¾' };

/** ½, 1½, 0.3, 2: at most three decimals. */
export function gpuNumber(gpu: number): string {
  const whole = Math.floor(gpu);
  const part = FRACTIONS[gpu - whole];
  return part === undefined ? String(Number(gpu.toFixed(3))) : `${whole === 0 ? '' : whole}${part}`;
}

/** ½ GPU, 0 GPUs, 1½ GPUs. */
export function gpuText(gpu: number): string {
  return `${gpuNumber(gpu)} ${gpu > 1 || gpu === 0 ? 'GPUs' : 'GPU'}`;
}

/** ½ GPU, 0.3 GPU, 2 GPUs, 20 GiB; null when nothing was requested. */
export function shareText(share: Share): string | null {
  if (share.gpu_memory_mib !== null) {
    return memoryText(share.gpu_memory_mib);
  }
  return share.gpu === null || share.gpu === 0 ? null : gpuText(share.gpu);
}

/** A request as text: ½ GPU, 20GiB, the name of a preset. */
export function requestText(request: KernelRequest): string {
  const { gpu, gpu_memory, preset } = request;
  const amount = Number(gpu);
  if (gpu !== null && gpu !== undefined) {
    return Number.isFinite(amount) ? gpuText(amount) : String(gpu);
  }
  return String(gpu_memory ?? preset ?? '');
}

/** Enough of a kernel id to tell two kernels apart. */
export function shortId(id: string): string {
  return id.slice(0, 8);
}

/** A GPU's short name: its index where the id ends in one, else the start of its UUID. */
export function gpuName(id: string): string {
  const number = /^SIM-GPU-.*-(\d+)$|\/(\d+)$/.exec(id);
  return number === null ? id.replace(/^GPU-/i, '').slice(0, 8) : (number[1] ?? number[2]);
}

/** The notebook's file name. */
export function kernelName(kernel: Kernel): string {
  const name = kernel.name.split('/').pop() ?? '';
  return name === '' ? `kernel ${shortId(kernel.kernel_id)}` : name;
}

/** A fraction as a percentage: 37 %. */
export function percentText(part: number): string {
  return `${Math.round(100 * part)} %`;
}

/** Whole seconds until a deadline, never negative. */
export function secondsLeft(deadline: string, now: number): number {
  return Math.max(0, Math.ceil((Date.parse(deadline) - now) / 1000));
}

/** Time until a deadline: 12 s, 10 min. */
export function timeLeft(deadline: string, now: number): string {
  const seconds = secondsLeft(deadline, now);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

/** 14:03:27 in the local time zone, as in `%gpu` and logs. */
export function timeText(time: string | number): string {
  return new Date(time).toLocaleTimeString(undefined, { hourCycle: 'h23' });
}
