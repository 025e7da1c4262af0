/** Amounts, times and states in words. Pure; sentences that need translation take the bundle as an argument. */
import { TranslationBundle } from '@jupyterlab/translation';

import { Kernel, KernelRequest, Share } from './schema';

/** 512 MiB, 40 GiB, 1.5 GiB: at most one decimal, binary units as everywhere in this product. */
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

/** ½ GPU, 0.3 GPU, 2 GPUs, 20 GiB; null when nothing was asked. */
export function shareText(share: Share): string | null {
  if (share.gpu_memory_mib !== null) {
    return memoryText(share.gpu_memory_mib);
  }
  return share.gpu === null || share.gpu === 0 ? null : gpuText(share.gpu);
}

/** A request as a person would say it: ½ GPU, 20GiB, the name of a preset. */
export function requestText(request: KernelRequest): string {
  const { gpu, gpu_memory, preset } = request;
  const amount = Number(gpu);
  if (gpu !== null && gpu !== undefined) {
    return Number.isFinite(amount) ? gpuText(amount) : String(gpu);
  }
  return String(gpu_memory ?? preset ?? '');
}

/** Enough of a kernel's id to tell two of them apart. */
export function shortId(id: string): string {
  return id.slice(0, 8);
}

/** A GPU beside its node's name: its number where the id ends in one (SIM-GPU-n0-1, n0/1), else the beginning of its UUID. */
export function gpuName(id: string): string {
  const number = /^SIM-GPU-.*-(\d+)$|\/(\d+)$/.exec(id);
  return number === null ? id.replace(/^GPU-/i, '').slice(0, 8) : (number[1] ?? number[2]);
}

/** The notebook's file name; the whole path is the tooltip. */
export function kernelName(kernel: Kernel): string {
  const name = kernel.name.split('/').pop() ?? '';
  return name === '' ? `kernel ${shortId(kernel.kernel_id)}` : name;
}

/** What a kernel's state means to its owner, in a few words. */
export function stateText(kernel: Kernel, trans: TranslationBundle): string {
  switch (kernel.state) {
    case 'detached':
      return trans.__('no GPU');
    case 'pending':
      return trans.__('waiting');
    case 'granted':
      return trans.__('granted');
    case 'attached':
      return kernel.memory_mib.borrowed > 0 ? trans.__('bursting') : trans.__('on GPU');
    case 'suspended':
      return trans.__('suspended');
    case 'reclaiming':
      return trans.__('moving');
    case 'lost':
      return trans.__('lost');
  }
}

/** 37 %: a part of one. */
export function percentText(part: number): string {
  return `${Math.round(100 * part)} %`;
}

/** Whole seconds until a deadline, never negative. */
export function secondsLeft(deadline: string, now: number): number {
  return Math.max(0, Math.ceil((Date.parse(deadline) - now) / 1000));
}

/** How long there is until a deadline: 12 s, 10 min. Rules for idle GPUs warn long before. */
export function timeLeft(deadline: string, now: number): string {
  const seconds = secondsLeft(deadline, now);
  return seconds < 120 ? `${seconds} s` : `${Math.round(seconds / 60)} min`;
}

/** 14:03:27 in the reader's own time zone and manner. */
export function timeText(time: string | number): string {
  return new Date(time).toLocaleTimeString();
}
