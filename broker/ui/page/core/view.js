// The library that draws: one place to import it from, so that its version changes in one line.
export {
  createContext, html, render, useContext, useEffect, useErrorBoundary, useMemo, useRef, useState,
} from "../lib/standalone.module.js";
