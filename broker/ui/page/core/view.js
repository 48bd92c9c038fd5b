// The library that draws: one place to import it from, so that its version changes in one line.
export {
  createContext, h, html, render, useContext, useEffect, useErrorBoundary,
  useLayoutEffect, useMemo, useRef, useState,
} from "../lib/standalone.module.js";
