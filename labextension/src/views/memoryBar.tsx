/** One kernel's GPU memory: guaranteed, used, borrowed and saved. */
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { memoryText } from '../format';
import { MemoryMib } from '../schema';

interface IMemoryBarProps {
  memory: MemoryMib;
  /** Size of the GPU; 0 without one. */
  totalMib: number;
  /** Saved in host memory; missing on older servers. */
  savedMib?: number;
  trans: TranslationBundle;
}

export function MemoryBar({ memory, totalMib, savedMib = 0, trans }: IMemoryBarProps): JSX.Element {
  const scale = Math.max(totalMib, memory.guaranteed, memory.used + savedMib, 1);
  const percent = (mib: number) => `${(100 * mib) / scale}%`;
  const own = memory.used - memory.borrowed;
  const text = sentence(memory, totalMib, savedMib, trans);
  return (
    <div className="jp-GpuShare-memory">
      <div
        className="jp-GpuShare-bar"
        role="meter"
        aria-label={trans.__('GPU memory')}
        aria-valuemin={0}
        aria-valuemax={scale}
        aria-valuenow={memory.used}
        aria-valuetext={text}
        title={text}
      >
        <div className="jp-GpuShare-bar-guaranteed" style={{ width: percent(memory.guaranteed) }} />
        <div className="jp-GpuShare-bar-used" style={{ width: percent(own) }} />
        <div
          className="jp-GpuShare-bar-borrowed"
          style={{ left: percent(own), width: percent(memory.borrowed) }}
        />
        <div
          className="jp-GpuShare-bar-saved"
          style={{ left: percent(memory.used), width: percent(savedMib) }}
        />
      </div>
      <div className="jp-GpuShare-memory-text">{text}</div>
    </div>
  );
}

function sentence(
  memory: MemoryMib,
  totalMib: number,
  savedMib: number,
  trans: TranslationBundle
): string {
  const parts = [];
  if (savedMib > 0) {
    parts.push(trans.__('%1 saved in host memory', memoryText(savedMib)));
  }
  if (memory.used > 0 || savedMib === 0) {
    parts.push(usedText(memory, totalMib, trans));
  }
  if (memory.guaranteed > 0) {
    parts.push(trans.__('%1 guaranteed', memoryText(memory.guaranteed)));
  }
  if (memory.borrowed > 0) {
    parts.push(trans.__('%1 borrowed', memoryText(memory.borrowed)));
  }
  return parts.join(' · ');
}

function usedText({ used }: MemoryMib, totalMib: number, trans: TranslationBundle): string {
  return totalMib > 0
    ? trans.__('%1 of %2 used', memoryText(used), memoryText(totalMib))
    : trans.__('%1 used', memoryText(used));
}
